module js

go 1.21
