package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// ServiceName is the name of the kind in messages and journals.
const ServiceName = "service"

// Service registers services.
func Service() *Kind[lb.Service, v1.LoadbalanceEntry] {
	schema := lb.NewSchema()
	return &Kind[lb.Service, v1.LoadbalanceEntry]{
		Words: Words{
			Name: ServiceName, Document: ServiceDocument, Command: "lb", Aliases: []string{"loadbalancer", "lbs", "loadbalancers"},
			List: "lbAttr", Exported: true,
		},
		Stored: Stored[lb.Service]{
			Key:      func(s lb.Service) string { return s.Key.String() },
			Equal:    schema.Equal,
			Validate: lb.Service.Validate,
			Clone:    schema.Clone,
			Format:   schema.RecordFormat(),
			Encode:   schema.MarshalRecord,
			Decode:   schema.UnmarshalRecord,
			Shared:   true,
		},
	}
}
