package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
)

// Versions of files. A file is written in the lowest version that can express its content, so an
// older loxilb can read it if possible. A change of the form of lines needs a new version. A new
// member of an object only increases the format of its kind (Kind.Format).
const (
	bareVersion   = 2 // objects of one kind, bare (Kind.Bare); version 1 has the same form
	latestVersion = 3 // objects of any kind, each with its format
	bareFormat    = 2 // the highest format of objects in a file of bareVersion
)

// The first line of a file is a header. The other lines are objects (snapshot) or commits
// (journal). Each line is a JSON object that contains a body and its CRC-32C:
//
//	{"crc":"d5a1ce6f","body":{"file":"snapshot","version":2,"revision":7,"services":1,"versions":[5]}}
//	{"crc":"0b1d51f8","body":{"service":"10.0.0.1:80/tcp","owner":"rest","mode":"default",...}}
//
// or, in version 3,
//
//	{"crc":"d5a1ce6f","body":{"file":"snapshot","version":3,"revision":7,"objects":1}}
//	{"crc":"0b1d51f8","body":{"kind":"service","format":2,"key":"10.0.0.1:80/tcp","owner":"rest","version":5,"object":{...}}}
//
// The header has this form in all versions, so an older loxilb can distinguish a newer file from a
// damaged one. It ignores members that it does not know.
type headerRecord struct {
	File     string `json:"file"` // snapshot or journal
	Version  int    `json:"version"`
	Revision uint64 `json:"revision"`           // of the snapshot, or before the first commit of the journal
	Services int    `json:"services,omitempty"` // number of objects in a snapshot up to version 2
	Objects  int    `json:"objects,omitempty"`  // number of objects in a snapshot of version 3
	// Versions of the objects of a snapshot up to version 2, line by line; none: each is the
	// snapshot's revision.
	Versions []uint64 `json:"versions,omitempty"`
}

// record is an object in a file.
type record struct {
	Kind    string          `json:"kind"`
	Format  int             `json:"format"`
	Key     string          `json:"key"`
	Owner   string          `json:"owner,omitempty"`   // in a snapshot; in a journal only if it is not the commit's owner
	Version uint64          `json:"version,omitempty"` // in a snapshot; in a journal it is the commit's revision
	Object  json.RawMessage `json:"object"`
}

// commitRecord is one transaction. It has complete objects, not differences.
type commitRecord struct {
	Revision uint64     `json:"revision"`
	Owner    string     `json:"owner"`
	Put      []record   `json:"put,omitempty"`
	Delete   []idRecord `json:"delete,omitempty"`
}

type idRecord struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// bareCommit is a commitRecord up to version 2.
type bareCommit struct {
	Revision uint64            `json:"revision"`
	Owner    string            `json:"owner"`
	Put      []json.RawMessage `json:"put,omitempty"`
	Delete   []string          `json:"delete,omitempty"`
}

const (
	linePrefix = `{"crc":"`
	lineMiddle = `","body":`
	lineSuffix = "}\n"
	bodyStart  = len(linePrefix) + 8 + len(lineMiddle)
)

var errChecksum = errors.New("its checksum does not match")

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// appendLine appends a line with the body that body appends, and its checksum.
func appendLine(b []byte, body func([]byte) []byte) []byte {
	start := len(b)
	b = append(b, linePrefix+"00000000"+lineMiddle...)
	b = body(b)
	sum := castagnoli(b[start+bodyStart:])
	hex.Encode(b[start+len(linePrefix):], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return append(b, lineSuffix...)
}

// encodeLine returns a record as a line with its checksum.
func encodeLine(record any) ([]byte, error) {
	body, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	return appendLine(nil, func(b []byte) []byte { return append(b, body...) }), nil
}

// decodeLine decodes a line, including its newline, into record. It accepts only the form that
// appendLine writes.
func decodeLine(line []byte, record any) error {
	body, err := lineBody(line)
	if err != nil {
		return err
	}
	return decodeStrict(body, record)
}

// decodeHeader reads a header of any version.
func decodeHeader(line []byte) (h headerRecord, err error) {
	body, err := lineBody(line)
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(body, &h)
}

// lineBody returns the body of a line after verifying its checksum.
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

// commitRecordOf returns the record of a change.
func commitRecordOf(l *layout, c *change) (*commitRecord, error) {
	r := &commitRecord{Revision: c.revision, Owner: c.owner}
	for _, changed := range c.rows {
		if changed.after == nil {
			r.Delete = append(r.Delete, idRecord(changed.id))
			continue
		}
		put, err := l.recordOf(tableRow{changed.table, changed.after})
		if err != nil {
			return nil, err
		}
		put.Version = 0 // it is the commit's revision
		if put.Owner == c.owner {
			put.Owner = "" // set only for restored objects
		}
		r.Put = append(r.Put, put)
	}
	return r, nil
}

// version returns the lowest version of a file that can contain the commit.
func (r *commitRecord) version(l *layout) int {
	for i := range r.Put {
		if !l.fitsVersion2(&r.Put[i]) || r.Put[i].Owner != "" {
			return latestVersion
		}
	}
	if slices.ContainsFunc(r.Delete, func(id idRecord) bool { return id.Kind != l.bareKind }) {
		return latestVersion
	}
	return bareVersion
}

// size estimates the length of the commit's line.
func (r *commitRecord) size() int {
	n := 128 + 96*len(r.Delete)
	for i := range r.Put {
		n += 96 + len(r.Put[i].Object)
	}
	return n
}

// fitsVersion2 reports whether a file of version 2 can contain the record.
func (l *layout) fitsVersion2(r *record) bool { return r.Kind == l.bareKind && r.Format <= bareFormat }

// appendTo appends the commit's line for a journal of a version. It does not use json.Marshal,
// which would change the bytes of unknown records.
func (r *commitRecord) appendTo(b []byte, version int) []byte {
	return appendLine(b, func(b []byte) []byte {
		b = append(b, `{"revision":`...)
		b = strconv.AppendUint(b, r.Revision, 10)
		b = append(b, `,"owner":`...)
		b = appendQuoted(b, r.Owner)
		b = appendList(b, `,"put":`, r.Put, func(b []byte, o record) []byte {
			if version < latestVersion {
				return append(b, o.Object...)
			}
			return o.appendTo(b)
		})
		b = appendList(b, `,"delete":`, r.Delete, func(b []byte, id idRecord) []byte {
			if version < latestVersion {
				return appendQuoted(b, id.Key)
			}
			b = append(b, `{"kind":`...)
			b = appendQuoted(b, id.Kind)
			b = append(b, `,"key":`...)
			b = appendQuoted(b, id.Key)
			return append(b, '}')
		})
		return append(b, '}')
	})
}

func (r *record) appendTo(b []byte) []byte {
	b = append(b, `{"kind":`...)
	b = appendQuoted(b, r.Kind)
	b = append(b, `,"format":`...)
	b = strconv.AppendInt(b, int64(r.Format), 10)
	b = append(b, `,"key":`...)
	b = appendQuoted(b, r.Key)
	if r.Owner != "" {
		b = append(b, `,"owner":`...)
		b = appendQuoted(b, r.Owner)
	}
	if r.Version != 0 {
		b = append(b, `,"version":`...)
		b = strconv.AppendUint(b, r.Version, 10)
	}
	b = append(b, `,"object":`...)
	b = append(b, r.Object...)
	return append(b, '}')
}

// appendBare appends the object in the form of a snapshot of version 2, with its owner as a member
// after the key, or as the first member if the key is not the first.
func (r *record) appendBare(b []byte, member string) []byte {
	head := append(appendQuoted(append(appendQuoted([]byte{'{'}, member), ':'), r.Key), ',')
	if !bytes.HasPrefix(r.Object, head) {
		head = head[:1]
	}
	rest := r.Object[len(head):]
	b = append(b, head...)
	b = append(b, `"owner":`...)
	b = appendQuoted(b, r.Owner)
	if rest[0] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}

func appendQuoted(b []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is refused
	}
	return append(b, quoted...)
}

// isPlain reports whether a text needs no escapes in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// appendList appends a member whose value is a list, or nothing if the list is empty. element
// appends one of its elements.
func appendList[T any](b []byte, name string, list []T, element func([]byte, T) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, name...)
	for i, v := range list {
		b = append(b, "[,"[min(i, 1)])
		b = element(b, v)
	}
	return append(b, ']')
}

// decodeCommit reads a line of a journal.
func (l *layout) decodeCommit(line []byte, version int) (c commitRecord, err error) {
	if version >= latestVersion {
		return c, decodeLine(line, &c)
	}
	var r bareCommit
	if err := decodeLine(line, &r); err != nil {
		return c, err
	}
	c = commitRecord{Revision: r.Revision, Owner: r.Owner, Put: make([]record, len(r.Put))}
	for i, object := range r.Put {
		c.Put[i] = record{Kind: l.bareKind, Format: bareFormat, Object: object}
	}
	for _, key := range r.Delete {
		c.Delete = append(c.Delete, idRecord{l.bareKind, key})
	}
	return c, nil
}

// decodeObject reads a line of a snapshot.
func (l *layout) decodeObject(line []byte, version int) (r record, err error) {
	if version >= latestVersion {
		return r, decodeLine(line, &r)
	}
	body, err := lineBody(line)
	if err != nil {
		return r, err
	}
	owner, err := l.bareOwner(body)
	return record{Kind: l.bareKind, Format: bareFormat, Owner: owner, Object: body}, err
}

// bareOwner returns the member "owner" of an object in a snapshot of version 2. Usually it follows
// the key, so it is found without decoding the object.
func (l *layout) bareOwner(object []byte) (string, error) {
	rest, ok := bytes.CutPrefix(object, []byte(`{"`+l.bareMember+`":"`))
	key, rest, closed := bytes.Cut(rest, []byte(`","owner":"`))
	owner, _, ends := bytes.Cut(rest, []byte(`"`))
	if ok && closed && ends && !bytes.ContainsAny(key, `"\`) && !bytes.ContainsRune(owner, '\\') {
		return string(owner), nil
	}
	var members struct {
		Owner string `json:"owner"`
	}
	err := json.Unmarshal(object, &members)
	return members.Owner, err
}

// rowOf returns the row of a record with its table. If the record is unknown, it is an unknownRow.
func (l *layout) rowOf(r *record) (table int, made row, err error) {
	if r.Format < 1 || len(r.Object) == 0 {
		return 0, nil, errors.New("it is not a record of an object")
	}
	reason := errors.New("its kind is not known to this loxilb")
	if table = slices.Index(l.names[:len(l.tables)], r.Kind); table >= 0 {
		if made, reason = l.tables[table].decode(r.Format, r.Object); reason == nil {
			key := l.tables[table].keyOf(made)
			if r.Key == "" || r.Key == key {
				*made.header() = rowHeader{made.header().sortKey, Meta{Owner: r.Owner, Version: r.Version}}
				return table, made, nil
			}
			reason = fmt.Errorf("it is stored under key %q, but its key is %q", r.Key, key)
		}
	}
	id, object := ID{r.Kind, r.Key}, slices.Clone([]byte(r.Object))
	if id.Key == "" {
		if id.Key, err = memberOf(object, l.bareMember); err != nil {
			return 0, nil, err
		}
		object = cutMember(object, "owner")
	}
	return l.unknownTable(), &unknownRow{rowHeader{unknownSortKey(id), Meta{Owner: r.Owner, Version: r.Version}}, id, r.Format, object, reason.Error()}, nil
}

// memberOf returns a string member of an object that cannot be decoded.
func memberOf(object []byte, name string) (text string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return "", err
	}
	if err := json.Unmarshal(members[name], &text); err != nil || text == "" {
		return "", fmt.Errorf("its member %q is not a key", name)
	}
	return text, nil
}

// cutMember removes a member of an object, and leaves all other bytes unchanged.
func cutMember(object []byte, name string) []byte {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return object
	}
	for first := true; d.More(); first = false {
		start := d.InputOffset()
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return object
		}
		end := d.InputOffset()
		if key != name {
			continue
		}
		if first && object[end] == ',' {
			end++
		}
		return slices.Delete(slices.Clone(object), int(start), int(end))
	}
	return object
}
