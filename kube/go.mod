module loxilb/kube

go 1.26.0

require (
	github.com/google/go-containerregistry v0.22.1
	github.com/vishvananda/netlink v1.3.1
	loxilb v0.0.0
)

require (
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace loxilb => ../
