module naps

go 1.21
