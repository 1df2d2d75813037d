package lb

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Algorithm chooses the endpoint of a new connection. The numbers are those of the REST API, as
// kube-loxilb sends them; older servers of the existing loxilb had n3 as 6 (now n2det).
type Algorithm uint8

// The algorithms of the existing loxilb.
const (
	RoundRobin       Algorithm = 0
	Hash             Algorithm = 1
	Priority         Algorithm = 2
	Persist          Algorithm = 3
	LeastConnections Algorithm = 4
	N2               Algorithm = 5
	N2Det            Algorithm = 6
	N3               Algorithm = 7
	Random           Algorithm = 100 // not in the contract; far above the next numbers that it may assign
	QUIC             Algorithm = 101 // not in the contract either
)

const noNGAP = "loxilb does not read NGAP messages; balance their associations with --sctp --select=persist"

func algorithms() []choice[Algorithm] {
	return []choice[Algorithm]{
		{value: RoundRobin, word: "rr", help: "round robin, strictly in the order written"},
		{value: Hash, word: "hash", help: "consistent, by addresses, ports and protocol"},
		{value: Priority, word: "priority", help: "smooth weighted round robin"},
		{value: Persist, word: "persist", help: "the endpoint of the client's last connection"},
		{value: LeastConnections, word: "lc", help: "fewest connections relative to its weight"},
		{value: N2, word: "n2", help: "5G N2: each NGAP message of an SCTP connection to an endpoint", alternative: noNGAP},
		{value: N2Det, word: "n2det", help: "like n2, but a client's messages always go to the same endpoint", alternative: noNGAP},
		{value: N3, word: "n3", help: "5G N3: GTP-U by the identifier of its tunnel"},
		{value: Random, word: "random", help: "randomly, by weight"},
		{value: QUIC, word: "quic", help: "QUIC: by the server ID in the connection ID; otherwise as hash"},
	}
}

// Layout is the layout of a service's endpoints in the slots from which its algorithm chooses.
type Layout uint8

// The layouts of slots.
const (
	LayoutOnce       Layout = iota // each endpoint once, whatever its weight
	LayoutWeighted                 // each endpoint as often as its weight
	LayoutConsistent               // by consistent hashing
	LayoutCompared                 // few: once, and compared with their weights; many: LayoutWeighted
)

// Layout returns the layout that the algorithm needs.
func (a Algorithm) Layout() Layout {
	switch a {
	case Hash, Persist, QUIC, N3:
		return LayoutConsistent
	case Priority, Random:
		return LayoutWeighted
	case LeastConnections:
		return LayoutCompared
	}
	return LayoutOnce
}

// VariesByPort reports whether another port of a client may get another endpoint, at any time.
func (a Algorithm) VariesByPort() bool {
	return a == Hash || a == Random || a == LeastConnections || a == QUIC
}

// String returns the existing loxilb's word.
func (a Algorithm) String() string { return wordOf("algorithm", a, algorithms()) }

// ParseAlgorithm parses the word or the number; "" means the default.
func ParseAlgorithm(s string) (Algorithm, error) {
	return parseWordOrNumber(FieldSelect, s, algorithms())
}

func (s Service) validatePersist() error {
	const allowed = "0s (the default, 10800s) to 86400s, whole seconds"
	bits := s.VIP.BitLen()
	switch {
	case s.Algorithm != Persist && s.PersistTimeout != 0:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is set, but select is "+s.Algorithm.String(), "0s, or select persist")
	case s.Algorithm != Persist && s.PersistPrefix != 0:
		return NewFieldError(FieldPersistPrefix, strconv.Itoa(int(s.PersistPrefix)), "is set, but select is "+s.Algorithm.String(), "0, or select persist")
	case s.PersistTimeout < 0 || s.PersistTimeout > MaxPersistTimeout:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is out of range", allowed)
	case s.PersistTimeout%time.Second != 0:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is not whole seconds", allowed)
	case int(s.PersistPrefix) > bits:
		return NewFieldError(FieldPersistPrefix, strconv.Itoa(int(s.PersistPrefix)), "is longer than an address of the VIP's family",
			"0 (the whole address) to "+strconv.Itoa(bits))
	}
	return nil
}

// MaxBackup is the highest level of backups.
const MaxBackup = 9

// maxPercent is the highest percentage of --failover-below.
const maxPercent = 100

// ActiveLevel returns the highest level of endpoints that gets new connections: levels are added
// from the first one on until one has enough weight. weights has the endpoints' weights for new
// connections; 0 means none.
func (s *Service) ActiveLevel(weights []uint32) (level uint8) {
	for _, level = range s.levels() {
		var has, all uint64
		for i, e := range s.Endpoints {
			if e.Backup == level {
				all += uint64(e.Weight)
				if weights[i] > 0 {
					has += uint64(e.Weight)
				}
			}
		}
		if has > 0 && has*maxPercent >= uint64(s.FailoverBelow)*all {
			break
		}
	}
	return level
}

// levels returns the service's levels in order.
func (s *Service) levels() []uint8 {
	list := make([]uint8, len(s.Endpoints))
	for i, e := range s.Endpoints {
		list[i] = e.Backup
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// cutBackup cuts @LEVEL from the end of an endpoint's text.
func cutBackup(text string) (rest string, level uint8, err error) {
	rest, written, found := strings.Cut(text, "@")
	if !found {
		return text, 0, nil
	}
	n, err := parseInt(FieldBackup, written, backupAllowed)
	if err == nil && (n < 0 || n > MaxBackup) {
		err = NewFieldError(FieldBackup, strconv.Itoa(n), "is out of range", backupAllowed)
	}
	return rest, uint8(max(0, min(n, MaxBackup))), err
}

const backupAllowed = "0 (none) to 9"

// backupFields returns the fields that define when backups take connections.
func backupFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldFailover, Text: "failover-below", Record: "failoverBelow", Position: 41, Since: closingFormat,
		Property: "serviceArguments.failoverBelow", Flag: "failover-below",
		Help:    "add the next level of backups when less than this percentage of a level's weight is up; 0 waits until none is up",
		Allowed: failoverAllowed,
		form:    number(func(s *Service) *uint8 { return &s.FailoverBelow }, 255),
	}}
}

const failoverAllowed = "0 (none) to 100"

func (s *Service) validateBackups() error {
	if s.FailoverBelow > maxPercent {
		return NewFieldError(FieldFailover, strconv.Itoa(int(s.FailoverBelow)), "is out of range", failoverAllowed)
	}
	for _, e := range s.Endpoints {
		if e.Backup > MaxBackup {
			return NewFieldError(FieldBackup, strconv.Itoa(int(e.Backup)), "is out of range", backupAllowed)
		}
	}
	return nil
}

// endpointsFormat returns the first record format that can express these endpoints.
func endpointsFormat(list []Endpoint) int {
	if slices.ContainsFunc(list, func(e Endpoint) bool { return e.ServerID != "" }) {
		return quicFormat
	}
	if slices.ContainsFunc(list, func(e Endpoint) bool { return e.Backup != 0 }) {
		return closingFormat
	}
	return firstRecordFormat
}

// Limits of Service.SlowStart.
const (
	MinSlowStart = time.Second
	MaxSlowStart = time.Hour
)

func slowStartFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldSlowStart, Text: "slow-start", Record: "slowStart", Position: 42, Since: closingFormat,
		Property: "serviceArguments.slowStart", Flag: "slow-start",
		Help: "ramp up new connections to an added or recovered endpoint over this time, such as 30s (default: at once)",
		form: duration(func(s *Service) *time.Duration { return &s.SlowStart }),
	}}
}

func (s *Service) validateSlowStart() error {
	if d := s.SlowStart; d != 0 && (d < MinSlowStart || d > MaxSlowStart) {
		return NewFieldError(FieldSlowStart, d.String(), "is out of range", "nothing, or 1s to 1h")
	}
	return nil
}

// HasBackups reports whether the endpoints have several levels.
func (s *Service) HasBackups() bool { return len(s.levels()) > 1 }
