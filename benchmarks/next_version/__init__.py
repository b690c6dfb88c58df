"""A later version of the product, as far as the database sees it: one more migration."""
