package rest

import (
	"bytes"
	"net/http"

	"loxilb/internal/lb"
)

// Limits of a body: the maximum numbers of services, prefixes and endpoints, and some more.
// docs/configuration.md lists them.
const (
	maxElements = 2 * lb.MaxServices
	maxObjects  = 2 << 20
	maxInner    = 2 * lb.MaxEndpoints
	maxPrefixes = 2 * lb.MaxSources
	maxMembers  = 1000 // of the body itself
	maxNested   = 63
)

// prefixList is the member of a service with its own limit: its elements are small, and may be more
// than services or endpoints.
const prefixList = `"allowedSources"`

// PartSize is the approximate number of bytes of a list of services that are decoded at once.
const PartSize = 64 << 10

// Outline is the structure of a body, found without decoding it.
type Outline struct {
	objects  int
	Elements int    // commas in arrays of the body except prefixList, or between properties of serviceArguments
	inner    int    // commas in arrays within these, except prefixList
	prefixes int    // commas in lists of that name
	members  int    // commas between properties of the body
	depth    int    // of values in values
	Parts    []Part // of the elements of lbAttr, if that is a list and the only member
}

// Part is some of the elements of a list.
type Part struct {
	Data  []byte // the objects, separated by commas
	First int    // index of the first one
	Count int    // number of elements
}

// OutlineOf scans a body, valid or not, and cuts its list into parts of at least partSize bytes. A
// body shorter than a part has no cuts, and no more elements than allowed.
func OutlineOf(data []byte, partSize int) (o Outline) {
	if len(data) < partSize {
		return o
	}
	depth, list, closed := 0, onlyList(data), false
	var lists, prefixes uint64 // one bit per depth: whether an open level is an array, and one of prefixes
	var parts []Part
	var text []byte // the last string, with its quotes: before an array, its name
	cut := func(end, elements int) {
		next := Part{Data: data[list:end]}
		if n := len(parts); n > 0 {
			next.First = parts[n-1].First + parts[n-1].Count
		}
		next.Count = elements - next.First
		parts, list = append(parts, next), end+1
	}
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := endOfString(data, i)
			text = data[i:min(end+1, len(data))]
			i = end
		case '{', '[':
			depth++
			o.depth = max(o.depth, depth)
			bit := uint64(1) << min(max(depth, 0), maxNested)
			lists, prefixes = lists&^bit, prefixes&^bit
			if data[i] == '{' {
				o.objects++
			} else if lists |= bit; bytes.EqualFold(text, []byte(prefixList)) {
				prefixes |= bit
			}
		case '}', ']':
			if depth--; depth == 1 && list >= 0 && !closed {
				cut(i, o.Elements+1)
				closed = true
				if endsBody(data[i:]) {
					o.Parts = parts
				}
			}
		case ',':
			bit := uint64(1) << min(max(depth, 0), maxNested)
			switch {
			case prefixes&bit != 0:
				o.prefixes++
			case depth == 1:
				o.members++
			case depth > 2 && lists&bit != 0:
				o.inner++
			}
			if depth != 2 || prefixes&bit != 0 {
				continue
			}
			if o.Elements++; list >= 0 && !closed && i-list >= partSize {
				cut(i, o.Elements)
			}
		}
	}
	return o
}

// endOfString returns the position of the quote that ends the string which begins at start; the end
// of data if there is none.
func endOfString(data []byte, start int) int {
	for end := start; ; {
		n := bytes.IndexByte(data[end+1:], '"')
		if n < 0 {
			return len(data)
		}
		end += 1 + n
		first := end // of the preceding backslashes, each pair is an escaped one
		for first-1 > start && data[first-1] == '\\' {
			first--
		}
		if (end-first)%2 == 0 {
			return end
		}
	}
}

// onlyList returns the position of the first element of the list lbAttr, if the body begins with
// it.
func onlyList(data []byte) int {
	rest := data
	for _, token := range []string{"{", `"lbAttr"`, ":", "["} {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if !bytes.HasPrefix(rest, []byte(token)) {
			return -1
		}
		rest = rest[len(token):]
	}
	return len(data) - len(rest)
}

// endsBody reports whether a list and the body end here.
func endsBody(data []byte) bool {
	for _, token := range []string{"]", "}"} {
		data = bytes.TrimLeft(data, " \t\r\n")
		if !bytes.HasPrefix(data, []byte(token)) {
			return false
		}
		data = data[1:]
	}
	return len(bytes.TrimLeft(data, " \t\r\n")) == 0
}

// TooMany refuses a body of more elements than any request needs, before they are decoded: an empty
// object is three bytes in a body, and some hundred in memory, so a body of 64 MiB could exhaust
// the memory.
func (o *Outline) TooMany() *Problem {
	for _, c := range []struct {
		n, most int
		what    string
	}{
		{o.Elements, maxElements, "elements in its arrays"},
		{o.inner, maxInner, "elements in arrays of its objects"},
		{o.prefixes, maxPrefixes, "prefixes of sources"},
		{o.objects, maxObjects, "objects"},
		{o.members, maxMembers, "properties"},
	} {
		if c.n > c.most {
			return Refuse(http.StatusRequestEntityTooLarge, "the body has %d %s, more than the limit of %d: send them in several requests", c.n, c.what, c.most)
		}
	}
	if o.depth > maxNested {
		return Refuse(http.StatusBadRequest, "the body nests values %d deep, more than the limit of %d", o.depth, maxNested)
	}
	return nil
}
