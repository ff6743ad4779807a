module keyward/go-query

go 1.19
