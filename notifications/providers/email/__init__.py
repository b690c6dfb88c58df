"""Mail: SMTP, maildir, Resend and Postmark, and the IMAP archive that proves delivery."""
