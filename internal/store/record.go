package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"loxilb/internal/lb"
)

// version of the files. A change that this code would not read, a new field included, takes the next number. Version 2
// has ranges of ports and marks in keys, and sources.
const version = 2

// The files hold one line for each thing: first a header, then services (snapshot) or commits (journal). Every
// line is a JSON object that carries the CRC-32C of its body's bytes:
//
//	{"crc":"d5a1ce6f","body":{"file":"snapshot","version":1,"revision":7,"services":1}}
//	{"crc":"0b1d51f8","body":{"service":"10.0.0.1:80/tcp","owner":"rest","mode":"default",...}}
//
// The header's line keeps this form in all versions, so that an older loxilb can tell a newer file from damage.
type headerRecord struct {
	File     string `json:"file"` // snapshot or journal
	Version  int    `json:"version"`
	Revision uint64 `json:"revision"`           // of the snapshot; that which the journal's first commit follows
	Services int    `json:"services,omitempty"` // lines of the snapshot
}

// serviceRecord is a service in words.
type serviceRecord struct {
	Service        string   `json:"service"`         // the key
	Owner          string   `json:"owner,omitempty"` // in a snapshot; in a journal the commit has it
	Name           string   `json:"name,omitempty"`
	Mode           string   `json:"mode"`
	Select         string   `json:"select"`
	Endpoints      []string `json:"endpoints"`
	Refuse         string   `json:"refuse,omitempty"`
	Tunnel         string   `json:"tunnel,omitempty"`
	MSS            uint16   `json:"mss,omitempty"`
	Idle           int64    `json:"idle,omitempty"` // seconds
	Sources        []string `json:"sources,omitempty"`
	SNAT           []string `json:"snat,omitempty"`
	Secondary      []string `json:"secondary,omitempty"`
	Egress         bool     `json:"egress,omitempty"`
	PersistTimeout int64    `json:"persistTimeout,omitempty"` // seconds
	PersistPrefix  uint8    `json:"persistPrefix,omitempty"`
	Managed        bool     `json:"managed,omitempty"`
}

// commitRecord is one transaction: each service in whole, so that it needs nothing from before.
type commitRecord struct {
	Revision uint64          `json:"revision"`
	Owner    string          `json:"owner"`
	Put      []serviceRecord `json:"put,omitempty"`
	Delete   []string        `json:"delete,omitempty"`
}

const (
	linePrefix = `{"crc":"`
	lineMiddle = `","body":`
	lineSuffix = "}\n"
	bodyStart  = len(linePrefix) + 8 + len(lineMiddle)
)

var errChecksum = errors.New("its checksum does not match")

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// encodeLine writes a record as a line with its checksum.
func encodeLine(record any) ([]byte, error) {
	body, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, bodyStart+len(body)+len(lineSuffix))
	line = fmt.Appendf(line, "%s%08x%s", linePrefix, castagnoli(body), lineMiddle)
	line = append(line, body...)
	return append(line, lineSuffix...), nil
}

// decodeLine reads a line, its newline included, into record. It takes the one form that encodeLine writes.
func decodeLine(line []byte, record any) error {
	body, err := lineBody(line)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(record)
}

// decodeHeader reads a header of any version.
func decodeHeader(line []byte) (h headerRecord, err error) {
	body, err := lineBody(line)
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(body, &h)
}

func lineBody(line []byte) ([]byte, error) {
	if len(line) < bodyStart+len(lineSuffix) || !bytes.HasPrefix(line, []byte(linePrefix)) ||
		!bytes.HasSuffix(line, []byte(lineSuffix)) {
		return nil, errors.New("it is not a line of a state file")
	}
	body := line[bodyStart : len(line)-len(lineSuffix)]
	sum, err := strconv.ParseUint(string(line[len(linePrefix):len(linePrefix)+8]), 16, 32)
	if err != nil || uint32(sum) != castagnoli(body) {
		return nil, errChecksum
	}
	return body, nil
}

func recordOf(c *change) commitRecord {
	r := commitRecord{Revision: c.revision, Owner: c.owner}
	for _, e := range c.put {
		r.Put = append(r.Put, recordOfService("", e.service))
	}
	for _, k := range c.deleted {
		r.Delete = append(r.Delete, k.String())
	}
	return r
}

func recordOfService(owner string, s lb.Service) serviceRecord {
	r := serviceRecord{
		Service: s.Key.String(), Owner: owner, Name: s.Name, Mode: s.Mode.String(), Select: s.Algorithm.String(),
		Endpoints: make([]string, len(s.Endpoints)), Idle: int64(s.IdleTimeout / time.Second), Managed: s.Managed,
	}
	r.PersistTimeout, r.PersistPrefix = int64(s.PersistTimeout/time.Second), s.PersistPrefix
	for i, e := range s.Endpoints {
		r.Endpoints[i] = e.String()
	}
	if s.Refuse != lb.RefuseReject {
		r.Refuse = s.Refuse.String()
	}
	if s.Tunnel != lb.TunnelNone {
		r.Tunnel = s.Tunnel.String()
	}
	r.MSS, r.Egress = s.MSS, s.Egress
	for _, a := range s.SNAT {
		r.SNAT = append(r.SNAT, a.String())
	}
	for _, a := range s.Secondary {
		r.Secondary = append(r.Secondary, a.String())
	}
	for _, p := range s.Sources {
		r.Sources = append(r.Sources, p.String())
	}
	return r
}

// service is the inverse of recordOfService.
func (r *serviceRecord) service() (s lb.Service, err error) {
	if s.Key, err = lb.ParseKey(r.Service); err != nil {
		return s, err
	}
	if s.Mode, err = lb.ParseMode(r.Mode); err != nil {
		return s, err
	}
	if s.Algorithm, err = lb.ParseAlgorithm(r.Select); err != nil {
		return s, err
	}
	if s.Tunnel, err = lb.ParseTunnel(r.Tunnel); err != nil {
		return s, err
	}
	if s.Refuse, err = lb.ParseRefusal(r.Refuse); err != nil {
		return s, err
	}
	s.MSS, s.Egress = r.MSS, r.Egress
	s.Endpoints = make([]lb.Endpoint, len(r.Endpoints))
	for i, text := range r.Endpoints {
		if s.Endpoints[i], err = lb.ParseEndpoint(text); err != nil {
			return s, err
		}
	}
	if r.Sources != nil {
		if s.Sources, err = lb.ParseSources(r.Sources); err != nil {
			return s, err
		}
	}
	if s.SNAT, err = lb.ParseSNAT(r.SNAT); err != nil {
		return s, err
	}
	if s.Secondary, err = lb.ParseSecondary(r.Secondary); err != nil {
		return s, err
	}
	s.PersistTimeout, s.PersistPrefix = time.Duration(r.PersistTimeout)*time.Second, r.PersistPrefix
	s.Name, s.Managed, s.IdleTimeout = r.Name, r.Managed, time.Duration(r.Idle)*time.Second
	return s, s.Validate()
}

// replay puts what a commit did on top of tx.
func (r *commitRecord) replay(tx *Tx) error {
	for _, text := range r.Delete {
		k, err := lb.ParseKey(text)
		if err != nil {
			return err
		}
		tx.remove(k)
	}
	for i := range r.Put {
		s, err := r.Put[i].service()
		if err != nil {
			return err
		}
		tx.set(&entry{owner: r.Owner, service: s})
	}
	return nil
}
