module stacks

go 1.21
