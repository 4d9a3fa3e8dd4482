"""The foundation: values, hashes, signatures, redaction and names, each in one place."""
