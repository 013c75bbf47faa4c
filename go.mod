module ampc

go 1.26
