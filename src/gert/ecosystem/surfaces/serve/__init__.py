"""`gert serve`: gert for editors, over JSON-RPC 2.0 on standard input and output."""
