from django.conf import settings
from django.db import migrations

# However an account changes, by a form, a command or a statement.
_MAKE = """
CREATE FUNCTION public.feed_links_end() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.feed_keys (user_id, resets) VALUES (NEW.id, 1)
        ON CONFLICT (user_id) DO UPDATE SET resets = feed_keys.resets + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER feed_links_end AFTER UPDATE OF password, is_active ON auth_user FOR EACH ROW
    WHEN (OLD.password <> NEW.password OR (OLD.is_active AND NOT NEW.is_active))
    EXECUTE FUNCTION public.feed_links_end();
"""
_DROP = 'DROP TRIGGER feed_links_end ON auth_user; DROP FUNCTION public.feed_links_end()'


class Migration(migrations.Migration):

    dependencies = [
        ('reviews', '0026_partial_reviews'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [migrations.RunSQL(_MAKE, _DROP)]
