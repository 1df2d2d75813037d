package diagnose

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Removed replaces a secret, and Masked an address.
const (
	Removed = "[removed]"
	Masked  = "[address]"
)

// secretWord matches part of the names of secrets.
const secretWord = `(?:token|passw(?:or)?d|passphrase|secret|authorization|cookie|api[-_]?key|private[-_]?key|headers?|credentials?|probe[-_]?req(?:uest)?|probe[-_]?resp(?:onse)?)`

// secrets returns patterns that are replaced everywhere.
func secrets() []replacement {
	return []replacement{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`), Removed},
		{regexp.MustCompile(`(?i)("[\w.-]*` + secretWord + `[\w.-]*"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|\\?\z)`), `${1}"` + Removed + `"`},
		{regexp.MustCompile(`(?i)("[\w.-]*` + secretWord + `[\w.-]*"\s*:\s*)(?:\{[^{}]*(?:\}|\z)|\[[^\[\]]*(?:\]|\z))`), `${1}"` + Removed + `"`},
		{regexp.MustCompile(`(?i)([\w.-]*` + secretWord + `[\w.-]*)(\s*=\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;]+)`), `${1}${2}` + Removed},
		{regexp.MustCompile(`(?im)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)(\s*:\s*)[^\r\n"\\]+`), `${1}${2}` + Removed},
		{regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9+/=._~-]{8,}`), `${1}${2}` + Removed},
		{regexp.MustCompile(`(?im)^([ \t-]*[\w.-]*` + secretWord + `[\w.-]*:[ \t]+)[^\s{\["][^\r\n]*`), `${1}` + Removed},
		{regexp.MustCompile(`://[^/\s:@"]+:[^/\s@"]+@`), `://` + Removed + `@`},
		{regexp.MustCompile(`\$(?:2[abxy]|argon2[a-z]*|5|6|scrypt|y)\$[^\s"':]+`), Removed},
		{regexp.MustCompile(`\b([0-6]:[0-9]{1,2}:)[0-9A-Fa-f]{32}\b`), `${1}` + Removed}, // of QUIC's connection IDs
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), Removed},
	}
}

// hints returns words. A text that matches the pattern contains at least one of them.
func hints(pattern string) []string {
	switch {
	case strings.Contains(pattern, secretWord):
		return []string{"token", "passw", "passphrase", "secret", "authorization", "cookie", "key", "header", "credential", "probe"}
	case strings.Contains(pattern, "authorization"):
		return []string{"authorization", "cookie", "x-api-key", "x-auth-token"}
	case strings.Contains(pattern, "bearer"):
		return []string{"bearer", "basic"}
	case strings.Contains(pattern, "PRIVATE"):
		return []string{"private key"}
	case strings.HasPrefix(pattern, "://"):
		return []string{"://"}
	case strings.Contains(pattern, "argon2"):
		return []string{"$"}
	case strings.Contains(pattern, "[0-6]:"):
		return []string{"quic"}
	}
	return []string{"eyj"}
}

type replacement struct {
	from *regexp.Regexp
	to   string
}

// scrubber removes secrets and addresses of clients.
type scrubber struct {
	known    []string // literal secrets
	keep     map[netip.Addr]bool
	patterns []replacement
}

// newScrubber makes a scrubber of these secrets. It keeps addresses, which do not belong to
// clients.
func newScrubber(known []string, keep []netip.Addr) scrubber {
	s := scrubber{keep: map[netip.Addr]bool{}, patterns: secrets()}
	for _, k := range known {
		if k = strings.TrimSpace(k); len(k) >= 4 { // shorter ones would match parts of words, and are not secrets
			s.known = append(s.known, k)
		}
	}
	for _, a := range keep {
		s.keep[a.Unmap().WithZone("")] = true
	}
	return s
}

// maybeAddress matches whatever may be an address, including IPv6 addresses that end like IPv4.
var maybeAddress = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*|\d{1,3}(?:\.\d{1,3}){3}`)

// Text returns a text without secrets, and, unless addresses is true, without addresses of clients.
func (s *scrubber) Text(text string, addresses bool) string {
	for _, k := range s.known {
		text = strings.ReplaceAll(text, k, Removed)
	}
	lower := strings.ToLower(text)
	for _, p := range s.patterns {
		if !slices.ContainsFunc(hints(p.from.String()), func(h string) bool { return strings.Contains(lower, h) }) {
			continue // most texts contain none, and matching a pattern is slow
		}
		text = p.from.ReplaceAllString(text, p.to)
	}
	if addresses {
		return text
	}
	return maybeAddress.ReplaceAllStringFunc(text, func(word string) string {
		a, err := netip.ParseAddr(word)
		if err != nil || s.keep[a.Unmap()] || a.IsLoopback() || a.IsUnspecified() {
			return word
		}
		return Masked
	})
}
