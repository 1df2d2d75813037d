// Package users has the commands about users of the API, their tokens and audit log, and about
// contexts: named servers with a token for each.
package users

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Root:     {configCommand(o)},
		session.Describe: {userKind().Describe(o)},
		session.Get:      {getAudit(o), userKind().Get(o)},
		session.Create:   {createUser(o)},
		session.Set:      {setLogin(o), setLogout(o), setUser(o)},
		session.Delete:   {deleteUser(o)},
	}
}
