module gert/conformance/template

go 1.24
