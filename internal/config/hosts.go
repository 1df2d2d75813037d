package config

import (
	"regexp"
	"strings"
)

// checkHosts returns the names of --api-hosts in lower case.
func checkHosts(names []string) ([]string, error) {
	isName := regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)
	var out []string
	for _, name := range names {
		lower := strings.ToLower(name)
		if !isName.MatchString(lower) || len(lower) > 253 {
			return nil, &Error{"--api-hosts", name, "is not a DNS name: use a name such as lb.example.com, without scheme and port"}
		}
		out = append(out, lower)
	}
	return out, nil
}
