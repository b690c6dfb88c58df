"""The first page of the admin: present state, trends, and the counts they are drawn from."""
