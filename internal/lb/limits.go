package lb

import "time"

// Limits of the desired state. The maps of the data path are sized by them.
const (
	MaxServices            = 65536
	MaxEndpointsPerService = 4096
	MaxEndpoints           = 262144 // of all services together
	MaxWeight              = 65535
	MaxIdleTimeout         = 24 * time.Hour
	MaxNameLength          = 128 // characters
)
