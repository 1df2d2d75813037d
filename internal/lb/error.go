package lb

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names of fields in FieldErrors. Callers translate them to their own, of JSON or of flags.
const (
	FieldService           = "service"
	FieldVIP               = "VIP"
	FieldPort              = "port"
	FieldPortMax           = "last port"
	FieldPorts             = "ports"
	FieldMark              = "mark"
	FieldSource            = "source"
	FieldSources           = "sources"
	FieldDenied            = "denied sources"
	FieldDeniedSource      = "denied source"
	FieldProtocol          = "protocol"
	FieldMode              = "mode"
	FieldSelect            = "select"
	FieldEndpoints         = "endpoints"
	FieldEndpoint          = "endpoint"
	FieldEndpointAddress   = "endpoint address"
	FieldEndpointPort      = "endpoint port"
	FieldEndpointPortMax   = "last endpoint port"
	FieldWeight            = "weight"
	FieldIdleTimeout       = "idle timeout"
	FieldPersistTimeout    = "persist timeout"
	FieldPersistPrefix     = "persist prefix"
	FieldManaged           = "managed"
	FieldOwner             = "owner"
	FieldOwnerTime         = "owner time"
	FieldRefuse            = "refuse"
	FieldSynProtect        = "SYN protection"
	FieldRate              = "rate"
	FieldConnections       = "connections"
	FieldClientRate        = "client rate"
	FieldClientConnections = "client connections"
	FieldClientPrefix      = "client prefix"
	FieldTunnel            = "tunnel"
	FieldMSS               = "mss"
	FieldSNAT              = "snat"
	FieldSecondary         = "secondary VIP"
	FieldEgress            = "egress"
	FieldProxyProtocol     = "PROXY protocol"
	FieldHelper            = "helper"
	FieldBGP               = "bgp"
	FieldAnnounce          = "bgp announce"
	FieldMED               = "bgp MED"
	FieldLocalPref         = "bgp local preference"
	FieldCommunities       = "bgp communities"
	FieldCommunity         = "bgp community"
	FieldPrepend           = "bgp prepend"
	FieldAggregate         = "bgp aggregate"
	FieldRole              = "state"
	FieldInstance          = "instance"
	FieldInstanceVIP       = "vip"
	FieldInstanceLease     = "lease"
	FieldName              = "name"
	FieldMonitor           = "monitor"
	FieldAddress           = "address"
	FieldOutlier           = "outlier"
	FieldAllDown           = "all down"
	FieldOnRemove          = "on remove"
	FieldBackup            = "backup"
	FieldSlowStart         = "slow start"
	FieldQUIC              = "quic configuration"
	FieldServerID          = "server ID"
	FieldFailover          = "failover below"
	FieldOnFail            = "on fail"
	FieldDrainTime         = "drain time"
	FieldProbeType         = "probe type"
	FieldProbePort         = "probe port"
	FieldProbeRequest      = "probe request"
	FieldProbeResponse     = "probe response"
	FieldProbeInterval     = "probe interval"
	FieldProbeWait         = "probe wait"
	FieldProbeRetries      = "probe retries"
	FieldProbeRise         = "probe rise"
	FieldProbeHost         = "probe host"
	FieldProbeStatuses     = "probe statuses"
	FieldProbeStatus       = "probe status"
	FieldProbeCA           = "probe CA"
	FieldProbeCertificate  = "probe certificate"
	FieldProbeKey          = "probe key"
	FieldIdent             = "name of the policer or mirror"
	FieldAttachment        = "attachment"
	FieldTarget            = "target"
	FieldDirection         = "direction"
	FieldCommittedRate     = "committed rate"
	FieldPeakRate          = "peak rate"
	FieldCommittedBurst    = "committed burst"
	FieldExcessBurst       = "excess burst"
	FieldMirrorType        = "type"
	FieldMirrorPort        = "port of the mirror"
	FieldVLAN              = "VLAN"
	FieldRemote            = "remote address"
	FieldMirrorSource      = "source address"
	FieldTunnelID          = "tunnel ID"
	FieldSample            = "sample"
	FieldSession           = "session"
	FieldUser              = "address of the user"
	FieldAccessTunnel      = "access tunnel"
	FieldCoreTunnel        = "core tunnel"
	FieldPeer              = "classified address"
	FieldQFI               = "QFI"
)

// maxShown is how many bytes of a refused value are shown: enough for plausible values.
const maxShown = 64

// FieldError reports a refused value of a field, the reason, and the allowed values. Value is safe
// to print: at most about 64 bytes, without control characters.
type FieldError struct {
	Field       string // one of the Field constants, or the caller's own name
	Value       string // as the user wrote it, cut and escaped
	Reason      string // a predicate: "is not an IP address"
	Allowed     string // "" if Reason includes it
	Unsupported bool   // the value is valid, but this build does not support it
}

// missing begins the reason why an absent value is refused.
const missing = "is missing"

// Error returns one sentence: `port "0" is zero (allowed: 1 to 65535)`.
func (e *FieldError) Error() string {
	s := e.Field + ` "` + e.Value + `" ` + e.Reason
	if e.Value == "" && strings.HasPrefix(e.Reason, missing) {
		s = e.Field + " " + e.Reason
	}
	if e.Allowed != "" {
		s += " (allowed: " + e.Allowed + ")"
	}
	return s
}

// NewFieldError refuses a value as the user wrote it. reason is a predicate.
func NewFieldError(field, value, reason, allowed string) *FieldError {
	return &FieldError{Field: field, Value: Printable(value), Reason: reason, Allowed: allowed}
}

// UnsupportedValue refuses a value of the existing loxilb that this build does not support. instead
// is an alternative: "let HAProxy do it".
func UnsupportedValue(field, value, instead, allowed string) *FieldError {
	e := NewFieldError(field, value, "is not part of this build: "+instead, allowed)
	e.Unsupported = true
	return e
}

// Printable returns a user's text in a form that can be part of a sentence: cut at maxShown, with
// unprintable characters and quotes escaped.
func Printable(s string) string {
	kept := truncated(s)
	cut := ""
	if kept != s {
		kept, cut = strings.TrimSuffix(kept, "..."), "..."
	}
	q := strconv.Quote(kept)
	return q[1:len(q)-1] + cut
}

// truncated cuts a value at maxShown, between characters.
func truncated(s string) string {
	if len(s) <= maxShown {
		return s
	}
	n := maxShown
	for n > maxShown-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// list writes words as "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Suggest returns the word most similar to text, or "" if more than one letter in three differs.
func Suggest(text string, words []string) string {
	best, least := "", max(1, len(text)/3)+1
	text = strings.ToLower(text)
	for _, w := range words {
		lower := strings.ToLower(w)
		d := distance(text, lower)
		if len(text) > 2 && strings.HasPrefix(lower, text) {
			d = min(d, 1)
		}
		if d < least {
			best, least = w, d
		}
	}
	return best
}

// DidYouMean returns a suggestion to append to an error, "" if no word is similar.
func DidYouMean(text string, words []string) string {
	if w := Suggest(text, words); w != "" && text != "" {
		return "; did you mean " + w + "?"
	}
	return ""
}

// distance returns the edit distance of two words: how many bytes must be inserted, deleted,
// replaced, or swapped with the next one.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 { // too long for a typing error
		return 1000
	}
	row, last := make([]int, len(b)+1), make([]int, len(b)+1)
	var before []int
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
