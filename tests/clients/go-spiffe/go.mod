module keyward/tests/clients/spiffe

go 1.25.0

require (
	github.com/go-jose/go-jose/v4 v4.1.3
	github.com/spiffe/go-spiffe/v2 v2.6.0
	google.golang.org/grpc v1.77.0
)

require (
	golang.org/x/net v0.46.1-0.20251013234738-63d1a5100f82 // indirect
	golang.org/x/sys v0.37.0 // indirect
	golang.org/x/text v0.30.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251022142026-3a174f9686a8 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)
