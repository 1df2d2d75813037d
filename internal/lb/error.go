package lb

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The fields that a FieldError names, in the words of this package. A caller with other names for
// them (JSON, flags) maps these.
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
	FieldBGP               = "bgp"
	FieldRole              = "state"
	FieldInstance          = "instance"
	FieldInstanceVIP       = "vip"
	FieldName              = "name"
	FieldMonitor           = "monitor"
	FieldOutlier           = "outlier"
	FieldAllDown           = "all down"
	FieldOnRemove          = "on remove"
	FieldBackup            = "backup"
	FieldSlowStart         = "slow start"
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
)

// maxShown bounds the part of a refused value that is shown, in bytes: enough for every value that
// was not a mistake.
const maxShown = 64

// FieldError names the refused value of a service, the reason, and the allowed values. Value is
// safe to print: at most about 64 bytes, without control characters.
type FieldError struct {
	Field   string // one of the Field constants, or the caller's own name
	Value   string // as the user wrote it, cut and escaped
	Reason  string // a predicate: "is not an IP address"
	Allowed string // "" when Reason says it
	// NotBuilt: the value is valid, but this build does not support it.
	NotBuilt bool
}

// Error returns one sentence: `port "0" is zero (allowed: 1 to 65535)`.
func (e *FieldError) Error() string {
	s := e.Field + ` "` + e.Value + `" ` + e.Reason
	if e.Allowed != "" {
		s += " (allowed: " + e.Allowed + ")"
	}
	return s
}

// NewFieldError makes an error of a value as the user wrote it; reason is a predicate.
func NewFieldError(field, value, reason, allowed string) *FieldError {
	return &FieldError{Field: field, Value: printable(value), Reason: reason, Allowed: allowed}
}

// NotBuilt refuses a value that the contract has and this build does not support. instead is what
// to do: "let HAProxy do it".
func NotBuilt(field, value, instead, allowed string) *FieldError {
	e := NewFieldError(field, value, "is not part of this build: "+instead, allowed)
	e.NotBuilt = true
	return e
}

// Printable returns a user's text in a form that can be part of a sentence.
func Printable(s string) string { return printable(s) }

// printable cuts a value at maxShown and escapes unprintable characters, and quotes.
func printable(s string) string {
	kept := shortened(s)
	cut := ""
	if kept != s {
		kept, cut = strings.TrimSuffix(kept, "..."), "..."
	}
	q := strconv.Quote(kept)
	return q[1:len(q)-1] + cut
}

// shortened cuts a value at maxShown, between characters.
func shortened(s string) string {
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
