package users

import (
	"net/http"
	"os/user"
	"slices"
	"strconv"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
)

// Loopback selects the local users who may use the API over TCP on loopback, besides root. (The
// mode of the UNIX socket protects that.)
type Loopback struct {
	Everyone bool // no identification
	UIDs     []uint32
	GIDs     []uint32 // from /etc/group and /etc/passwd, read at the first request of a connection
}

// admit refuses requests of users without access, and returns the identity of others.
func (u *Loopback) admit(r *http.Request) (name string, p *rest.Problem) {
	uid, err := transport.PeerOf(r)
	if u.Everyone {
		return accountName(uid, err), nil
	}
	if err != nil {
		return "", rest.Refuse(http.StatusForbidden, "the user of this connection can't be determined (%v): connect again, or use the UNIX socket", err)
	}
	if uid == 0 || slices.Contains(u.UIDs, uid) {
		return accountName(uid, nil), nil
	}
	who := strconv.FormatUint(uint64(uid), 10)
	account, err := user.LookupId(who)
	if err != nil {
		return "", notAdmitted(who, who)
	}
	if len(u.GIDs) > 0 {
		groups, err := account.GroupIds()
		if err == nil && slices.ContainsFunc(groups, u.hasGroup) {
			return account.Username, nil
		}
	}
	return "", notAdmitted(account.Username+" ("+who+")", account.Username)
}

// accountName returns the name of a local user.
func accountName(uid uint32, err error) string {
	if err != nil {
		return rest.UnknownUser
	}
	if uid == 0 {
		return "root" // without a look into a file, as it is nearly always
	}
	number := strconv.FormatUint(uint64(uid), 10)
	if account, err := user.LookupId(number); err == nil {
		return account.Username
	}
	return number
}

func (u *Loopback) hasGroup(id string) bool {
	gid, err := strconv.ParseUint(id, 10, 32)
	return err == nil && slices.Contains(u.GIDs, uint32(gid))
}

func notAdmitted(who, name string) *rest.Problem {
	return rest.Refuse(http.StatusForbidden, "user %s may not use the API: ask as root, join the group loxilb, "+
		"or have the daemon started with --api-users=%s", who, name)
}
