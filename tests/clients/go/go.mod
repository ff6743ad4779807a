module keyward/tests/clients

go 1.19

require github.com/hashicorp/go-tfe v0.11.1

require (
	github.com/google/go-querystring v1.0.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.0 // indirect
	github.com/hashicorp/go-retryablehttp v0.5.2 // indirect
	github.com/hashicorp/go-slug v0.4.1 // indirect
	github.com/svanharmelen/jsonapi v0.0.0-20180618144545-0c0828c3f16d // indirect
	golang.org/x/time v0.0.0-20190308202827-9d24e82272b4 // indirect
)
