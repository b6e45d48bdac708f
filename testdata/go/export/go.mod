module export

go 1.24
