// Package services has the commands about services and their endpoints.
package services

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Get:      {drainKind().Get(o), getEndpoint(o), getLB(o)},
		session.Describe: {drainKind().Describe(o), lbKind(o).Describe(o), endpointKind(o).Describe(o)},
		session.Create:   {createLB(o), createEndpoint(o)},
		session.Set:      {setEndpoint(o)},
		session.Delete:   {deleteLB(o), deleteEndpoint(o)},
		session.Drain:    {drainEndpoint(o)},
		session.Undrain:  {undrainEndpoint(o)},
	}
}
