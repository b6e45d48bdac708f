module mix

go 1.21
