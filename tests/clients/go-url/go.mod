module keyward/go-url

go 1.19
