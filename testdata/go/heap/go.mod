module heap

go 1.21
