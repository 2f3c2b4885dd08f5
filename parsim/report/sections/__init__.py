"""The sections of a sweep's page, one file a question."""
