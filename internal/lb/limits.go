package lb

import "time"

// Limits of the desired state. They determine the sizes of the data path's maps.
const (
	MaxServices            = 65536
	MaxEndpointsPerService = 4096
	MaxEndpoints           = 262144 // of all services together
	MaxSourcesPerService   = 1000000
	MaxSources             = 1048576 // of all services together
	MaxSNAT                = 64      // source addresses of a service
	MaxSecondary           = 3       // further VIPs of a service, as many as an SCTP association of the contract has
	MaxWeight              = 65535
	MaxIdleTimeout         = 24 * time.Hour
	MaxPersistTimeout      = 24 * time.Hour
	DefaultPersistTimeout  = 3 * time.Hour
	MaxNameLength          = 384 // characters: Kubernetes makes it of a namespace (63), a name (253) and an instance
)
