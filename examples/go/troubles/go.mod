module troubles

go 1.24
