package httpapi

import (
	"bytes"
	"net/http"

	"loxilb/internal/lb"
)

// maxElements and maxObjects bound what a body may say: as many services, and as many prefixes and endpoints, as there may be, and some
// more.
const (
	maxElements = 2 * lb.MaxServices
	maxObjects  = 2 << 20
)

// prefixList is the member of a service that stands alone which may have more elements than there may be services: they are small.
const prefixList = `"allowedSources"`

// partSize is about how many bytes of a list of services are decoded at once.
const partSize = 64 << 10

// outline is what a look at a body finds without decoding it.
type outline struct {
	objects  int
	elements int    // commas in arrays of the body, but for prefixList, or between properties of serviceArguments
	parts    []part // of the elements of its only member, if that is lbAttr and a list; none: it is something else
}

// part is some of the elements of a list.
type part struct {
	data  []byte // with commas between them
	first int    // index of the first one
	count int    // how many
}

// outlineOf looks at a body, valid or not. The list is cut into parts of at least so many bytes. A body that is shorter than a part
// has nothing to cut, and no more elements than there may be.
func outlineOf(data []byte, partSize int) (o outline) {
	if len(data) < partSize {
		return o
	}
	depth, list, closed := 0, onlyList(data), false
	var parts []part
	var member []byte // of the body, with its quotes
	cut := func(end, elements int) {
		next := part{data: data[list:end]}
		if n := len(parts); n > 0 {
			next.first = parts[n-1].first + parts[n-1].count
		}
		next.count = elements - next.first
		parts, list = append(parts, next), end+1
	}
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := endOfString(data, i)
			if depth == 1 {
				member = data[i:min(end+1, len(data))]
			}
			i = end
		case '{', '[':
			depth++
			if data[i] == '{' {
				o.objects++
			}
		case '}', ']':
			if depth--; depth == 1 && list >= 0 && !closed {
				cut(i, o.elements+1)
				closed = true
				if ends(data[i:]) {
					o.parts = parts
				}
			}
		case ',':
			if depth != 2 || bytes.EqualFold(member, []byte(prefixList)) {
				continue
			}
			if o.elements++; list >= 0 && !closed && i-list >= partSize {
				cut(i, o.elements)
			}
		}
	}
	return o
}

// endOfString is where the quote is that ends the string which begins at start; the end of data if there is none.
func endOfString(data []byte, start int) int {
	for end := start; ; {
		n := bytes.IndexByte(data[end+1:], '"')
		if n < 0 {
			return len(data)
		}
		end += 1 + n
		first := end // of the backslashes before it: each two of them are one that is meant
		for first-1 > start && data[first-1] == '\\' {
			first--
		}
		if (end-first)%2 == 0 {
			return end
		}
	}
}

// onlyList is where the elements of a list named lbAttr begin, if the body begins with that.
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

// ends tells whether a list and a body end here.
func ends(data []byte) bool {
	for _, token := range []string{"]", "}"} {
		data = bytes.TrimLeft(data, " \t\r\n")
		if !bytes.HasPrefix(data, []byte(token)) {
			return false
		}
		data = data[1:]
	}
	return len(bytes.TrimLeft(data, " \t\r\n")) == 0
}

// tooMany refuses a body of more elements than any request needs, before they are decoded: an empty object is three bytes in
// a body, and some hundred in memory, so that 64 MiB of them would end the daemon.
func (o *outline) tooMany() *problem {
	switch {
	case o.elements > maxElements:
		return refuse(http.StatusRequestEntityTooLarge, "the body has %d elements in its arrays, more than the %d that may be: send them in several requests", o.elements, maxElements)
	case o.objects > maxObjects:
		return refuse(http.StatusRequestEntityTooLarge, "the body has %d objects, more than the %d that may be: send them in several requests", o.objects, maxObjects)
	}
	return nil
}
