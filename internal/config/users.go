package config

import (
	"errors"
	"io/fs"
	"os/user"
	"strconv"
	"strings"
)

// apiGroup is the group whose members may use the API like root, if it exists.
const apiGroup = "loxilb"

// checkUsers finds the IDs of users and groups with access to the API.
func (f *flags) checkUsers(api *API) error {
	gid, err := groupID(apiGroup)
	if err == nil {
		api.Group = int(gid)
		api.GIDs = append(api.GIDs, gid)
	} else if unknown := user.UnknownGroupError(""); !errors.As(err, &unknown) && !errors.Is(err, fs.ErrNotExist) {
		// a small image has no /etc/group, and so lacks the group
		return &Error{"--api-users", "", "needs the group " + apiGroup + ", which cannot be looked up: " + err.Error()}
	}
	for _, word := range f.apiUsers {
		name, isGroup := strings.CutPrefix(word, "@")
		if isGroup {
			gid, err := groupID(name)
			if err != nil {
				return &Error{"--api-users", word, "is not a group of this machine: use @NAME or @NUMBER"}
			}
			api.GIDs = append(api.GIDs, gid)
			continue
		}
		uid, err := userID(name)
		if err != nil {
			return &Error{"--api-users", word, "is not a user of this machine: use NAME or NUMBER, and @ for a group"}
		}
		api.UIDs = append(api.UIDs, uid)
	}
	return nil
}

// userID accepts any number: containers have users without a name.
func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

func groupID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err
}
