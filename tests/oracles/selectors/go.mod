module keyward/tests/oracles/selectors

go 1.19

require github.com/hashicorp/go-bexpr v0.1.2
