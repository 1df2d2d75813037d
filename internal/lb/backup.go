package lb

import (
	"slices"
	"strconv"
	"strings"
)

// MaxBackup is the highest level of backups.
const MaxBackup = 9

// maxPercent is all of a level.
const maxPercent = 100

// Level returns the last level of endpoints that takes new connections: levels are added from the
// first one on until they have enough weight. takes has the weights of endpoints for new
// connections, 0 for those that take none.
func (s *Service) Level(takes []uint32) (level uint8) {
	for _, level = range s.levels() {
		var has, all uint64
		for i, e := range s.Endpoints {
			if e.Backup == level {
				all += uint64(e.Weight)
				if takes[i] > 0 {
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
		Name: FieldFailover, Text: "failover-below", Record: "failoverBelow", Place: 41, Since: closingFormat,
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
	if slices.ContainsFunc(list, func(e Endpoint) bool { return e.Backup != 0 }) {
		return closingFormat
	}
	return firstRecordFormat
}
