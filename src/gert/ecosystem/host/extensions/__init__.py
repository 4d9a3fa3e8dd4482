"""Extensions: check the runners that others write."""
