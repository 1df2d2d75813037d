package kinds

import (
	"cmp"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// BFDName is the name of the kind in messages and journals.
const BFDName = "bfd"

// BFD registers BFD sessions between nodes.
func BFD() *Kind[netobj.BFDSession, v1.BfdSession] {
	stored := asJSON(func(s netobj.BFDSession) string { return s.Key() }, func(s netobj.BFDSession) error { return s.Validate() })
	stored.Max, stored.Plural = 32, "BFD sessions" // the number of claims that fit into a packet
	stored.UniqueValues = func(s netobj.BFDSession) []string { return []string{lb.InstanceKey(s.Instance)} }
	stored.RefuseDuplicate = func(s netobj.BFDSession, other string) error {
		return lb.NewFieldError(lb.FieldInstance, cmp.Or(s.Instance, "default"), "already has BFD session "+other, "one for each instance")
	}
	return &Kind[netobj.BFDSession, v1.BfdSession]{
		Words: Words{
			Name: BFDName, Document: BFDDocument, Command: "bfd", Aliases: []string{"bfd-session"}, List: "Attr", Member: "remoteIp",
			Exported: true, Verified: true,
		},
		Stored: stored,
		API: API[netobj.BFDSession, v1.BfdSession]{
			Path: "/config/bfd", ObjectPath: "/remoteIP/{remote_ip}", Key: bfdKey, Read: readBFD, Show: showBFD,
			Merge: mergeBFD,
			Peer:  func(s netobj.BFDSession) (string, netip.Addr) { return lb.FieldRemote, s.Remote },
			Fields: map[string]string{
				lb.FieldRemote: "remoteIp", lb.FieldSource: "sourceIp", netobj.FieldBFDRetry: "retryCount",
			},
		},
		CLI: CLI[v1.BfdSession]{
			Texts:        Texts{Singular: "a BFD session with another node", Plural: "BFD sessions with other nodes", Details: "properties", Argument: "REMOTE", Sample: "10.0.0.2"},
			Name:         func(s *v1.BfdSession) string { return bfdName(s.RemoteIp, s.Instance) },
			Set:          func(s *v1.BfdSession, name string) { s.RemoteIp = name },
			Flags:        bfdFlags(),
			CustomDelete: true, // with the instance
			Columns:      bfdColumns(),
		},
	}
}

// bfdKey completes the key of a DELETE by the instance.
func bfdKey(name string, parameters url.Values) (string, error) {
	a, err := lb.ParseAddr("remote_ip", name)
	return netobj.BFDKey(a, parameters.Get("instance")), err
}

func bfdName(remote, instance string) string {
	a, err := netip.ParseAddr(remote)
	if err != nil {
		return remote // no session has it
	}
	return netobj.BFDKey(a, instance)
}

// mergeBFD keeps stored values that the body lacks, also for numbers that are 0. A client that
// sends an answer back would otherwise lose the source: answers contain the address in use instead.
// 0.0.0.0 removes the source.
func mergeBFD(stored, posted netobj.BFDSession, body *v1.BfdSession) netobj.BFDSession {
	if body.SourceIp == "" && body.SourceIP == "" {
		posted.Source = stored.Source
	}
	if body.Interval == 0 {
		posted.Interval = stored.Interval
	}
	if body.RetryCount == 0 {
		posted.Retry = stored.Retry
	}
	if body.Priority == 0 {
		posted.Priority = stored.Priority
	}
	return posted
}

func readBFD(body *v1.BfdSession) (s netobj.BFDSession, err error) {
	s = netobj.BFDSession{Instance: body.Instance, Multihop: body.Multihop, Preempt: body.Preempt}
	if body.RemoteIp == "" {
		return s, lb.NewFieldError(lb.FieldRemote, "", "is missing", "the address of the other node")
	}
	if s.Remote, err = netobj.ParsePeerAddr(lb.FieldRemote, body.RemoteIp); err != nil {
		return s, err
	}
	source := body.SourceIp
	if source == "" {
		source = body.SourceIP // as in answers
	}
	if source != "" && source != "0.0.0.0" {
		if s.Source, err = netobj.ParsePeerAddr(lb.FieldSource, source); err != nil {
			return s, err
		}
	}
	if s.Retry, err = optionalByte(netobj.FieldBFDRetry, body.RetryCount); err != nil {
		return s, err
	}
	if s.Priority, err = optionalByte(netobj.FieldBFDPriority, body.Priority); err != nil {
		return s, err
	}
	if body.Interval < 0 || body.Interval > math.MaxUint32 {
		return s, lb.NewFieldError(netobj.FieldBFDInterval, strconv.FormatInt(body.Interval, 10), "is out of range", "100000 to 60000000 microseconds")
	}
	s.Interval = time.Duration(body.Interval) * time.Microsecond
	return s.Normal(), nil
}

// optionalByte checks a number of the API that fits into a byte; 0 stands for the default.
func optionalByte(field string, n int) (uint8, error) {
	if n < 0 || n > math.MaxUint8 {
		return 0, lb.NewFieldError(field, strconv.Itoa(n), "is out of range", "1 to 255")
	}
	return uint8(n), nil
}

func showBFD(s *netobj.BFDSession) *v1.BfdSession {
	out := &v1.BfdSession{
		Instance: cmp.Or(s.Instance, "default"), RemoteIp: s.Remote.String(), Interval: s.Interval.Microseconds(), RetryCount: int(s.Retry),
		Multihop: s.Multihop, Priority: int(s.Priority), Preempt: s.Preempt,
	}
	if s.Source.IsValid() {
		out.SourceIp = s.Source.String()
	}
	return out
}

func bfdFlags() []Flag[*v1.BfdSession] {
	number := func(name, usage string, set func(s *v1.BfdSession, n int)) Flag[*v1.BfdSession] {
		return Flag[*v1.BfdSession]{Name: name, Usage: usage, Set: func(s *v1.BfdSession, value string) error {
			n, err := strconv.Atoi(value)
			set(s, n)
			return err
		}}
	}
	return []Flag[*v1.BfdSession]{
		{Name: "instance", Usage: "instance whose MASTER the two nodes elect (default default)", Set: func(s *v1.BfdSession, value string) error {
			s.Instance = value
			return nil
		}},
		{Name: "sourceIP", Usage: "address of this node (default: chosen by the route)", Set: func(s *v1.BfdSession, value string) error {
			s.SourceIp = value
			return nil
		}},
		number("interval", "microseconds between packets, at least 100000 (default 200000)", func(s *v1.BfdSession, n int) { s.Interval = int64(n) }),
		number("retryCount", "packets that may be missing before the peer is down (default 3)", func(s *v1.BfdSession, n int) { s.RetryCount = n }),
		number("priority", "1 to 255: of two nodes that start together, the higher one becomes MASTER (default 100)", func(s *v1.BfdSession, n int) { s.Priority = n }),
		boolean("preempt", "take over from a MASTER of lower priority", func(s *v1.BfdSession, on bool) { s.Preempt = on }),
		boolean("multihop", "the peer is behind routers", func(s *v1.BfdSession, on bool) { s.Multihop = on }),
	}
}

func boolean[B any](name, usage string, set func(b *B, on bool)) Flag[*B] {
	return Flag[*B]{Name: name, Usage: usage, Switch: true, Set: func(b *B, value string) error {
		on, err := strconv.ParseBool(value)
		set(b, on)
		return err
	}}
}

// bfdColumns are the existing loxilb's columns, followed by the state of the election.
func bfdColumns() []Column[*v1.BfdSession] {
	return []Column[*v1.BfdSession]{
		{Header: "Instance", Cell: func(s *v1.BfdSession) string { return s.Instance }},
		{Header: "RemoteIP", Cell: func(s *v1.BfdSession) string { return s.RemoteIp }},
		{Header: "SourceIP", Wide: true, Cell: func(s *v1.BfdSession) string { return s.SourceIP }},
		{Header: "Port", Wide: true, Cell: func(s *v1.BfdSession) string { return strconv.Itoa(s.Port) }},
		{Header: "Interval", Wide: true, Cell: func(s *v1.BfdSession) string { return strconv.FormatInt(s.Interval, 10) + " us" }},
		{Header: "Retry Count", Wide: true, Cell: func(s *v1.BfdSession) string { return strconv.Itoa(s.RetryCount) }},
		{Header: "State", Cell: func(s *v1.BfdSession) string { return s.State }},
		{Header: "Priority", Wide: true, Cell: func(s *v1.BfdSession) string { return strconv.Itoa(s.Priority) }},
		{Header: "Role", Wide: true, Cell: func(s *v1.BfdSession) string { return s.Role }},
		{Header: "Reason", Wide: true, Cell: func(s *v1.BfdSession) string { return s.Reason }},
	}
}
