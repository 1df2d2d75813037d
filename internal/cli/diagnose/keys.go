package diagnose

import (
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// sortKeys returns the keys that choose an order.
func sortKeys() map[string]string {
	return map[string]string{
		"c": "connections", "p": "packets", "b": "bytes", "a": "active", "s": "repeatedSyns", "f": "failedHandshakes", "d": "down", "n": "name", "1": "key",
	}
}

// press handles a key.
func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	word := key.String()
	switch {
	case word == "ctrl+c":
		return tea.Quit
	case m.help:
		m.help = false
	case m.typing:
		m.typeFilter(word, key.Text)
	case word == "q":
		return tea.Quit
	case word == "?", word == "h", word == "f1":
		m.help = true
	case word == "/":
		if m.service == "" {
			m.typing, m.typed = true, m.match
		}
	case word == "space":
		m.paused = !m.paused
	case word == "enter", word == "right", word == "l":
		m.enter()
	case word == "esc", word == "left", word == "backspace":
		m.back()
	case word == "<", word == ">":
		m.sortBeside(word == ">")
	case sortKeys()[word] != "":
		m.sortBy(sortKeys()[word])
	default:
		m.move(word)
	}
	return nil
}

// typeFilter handles a key while a filter is typed.
func (m *model) typeFilter(word, text string) {
	switch word {
	case "enter":
		m.typing = false
		if m.match != m.typed {
			m.match, m.offset, m.cursor = m.typed, 0, 0
			m.request()
		}
	case "esc":
		m.typing = false
	case "backspace":
		_, last := utf8.DecodeLastRuneInString(m.typed)
		m.typed = m.typed[:len(m.typed)-last]
	case "ctrl+u":
		m.typed = ""
	default:
		m.typed += printable(text)
	}
}

// enter shows the endpoints of the service that is chosen.
func (m *model) enter() {
	if m.service != "" || m.lastUpdate == nil || m.cursor >= len(m.lastUpdate.List.Services) {
		return
	}
	m.above = place{m.sort, m.offset, m.cursor}
	m.service, m.offset, m.cursor = m.lastUpdate.List.Services[m.cursor].Service, 0, 0
	m.sort = "key"
	m.begin()
}

// back leaves the endpoints, or the filter.
func (m *model) back() {
	switch {
	case m.service != "":
		m.closeService()
	case m.match != "":
		m.match, m.offset, m.cursor = "", 0, 0
		m.request()
	}
}

// closeService returns to the list of services, at the former position.
func (m *model) closeService() {
	m.service = ""
	m.sort, m.offset, m.cursor = m.above.sort, m.above.offset, m.above.cursor
	m.begin()
}

// begin requests another list.
func (m *model) begin() {
	m.trends, m.lost = nil, nil
	if m.lastUpdate != nil {
		rest := *m.lastUpdate
		rest.List.Services = nil
		m.lastUpdate = &rest
	}
	m.request()
}

func (m *model) sortBy(order string) {
	if m.service != "" && order == "name" {
		return // endpoints have none
	}
	m.sort, m.offset, m.cursor = order, 0, 0
	m.request()
}

// sortBeside sorts by the column to the right or the left.
func (m *model) sortBeside(right bool) {
	all := columns()
	at := slices.IndexFunc(all, func(c column) bool { return strings.HasPrefix(c.order, m.sort) })
	switch {
	case right:
		at = (at + 1) % len(all)
	case at <= 0:
		at = len(all) - 1
	default:
		at--
	}
	m.sortBy(all[at].order)
}

// move moves the cursor, and requests lines that become visible.
func (m *model) move(word string) {
	at, page := m.offset+m.cursor, m.rows()
	switch word {
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "pgup":
		at -= page
	case "pgdown":
		at += page
	case "home", "g":
		at = 0
	case "end", "G":
		at = m.total() - 1
	default:
		return
	}
	at = max(0, min(at, m.total()-1))
	offset := m.offset
	switch {
	case at < offset:
		offset = at
	case at >= offset+page:
		offset = at - page + 1
	}
	m.cursor = at - offset
	if offset != m.offset {
		m.offset = offset
		m.request()
	}
}

// keys returns the help line.
func (m *model) keys() string {
	g := &m.glyphs
	switch {
	case m.typing:
		return "type a part of a key or a name   " + g.enter + " filter   esc leave it as it was"
	case m.service != "":
		return "esc services  " + g.up + g.down + " move  sort: cpbasfd < >  space pause  ? help  q quit"
	}
	return g.enter + " endpoints  " + g.up + g.down + " move  / filter  sort: cpbasfdn < >  space pause  ? help  q quit"
}

func (m *model) helpScreen() []string {
	text := `Keys
  enter, right       the endpoints of the chosen service
  esc, left          back to the services; without a filter
  up down k j        choose; pgup pgdown home end g G go further
  /                  only services with a text in their key or name
  c p b a s f d n 1  sort by connections, packets, bytes, active, repeated SYNs,
                     failed handshakes, endpoints down, name, key
  < >                sort by the previous or next column
  space              pause                 q  quit
Columns
  UP       serving endpoints, of all; the service's state if none serves
  ACTIVE   open connections
  CONN/S   new connections per second      PKT/S  packets, both directions
  IN OUT   bits per second from clients, to clients (IP packets)
  RESYN    SYNs per second that were repeated: no answer, or it was lost
  FAIL     handshakes per second that were refused, reset or not delivered
  REFUSED  packets whose new connections were refused, in total; shown only if there are any

Press any key.`
	out := strings.Split(text, "\n")
	return out[:max(0, min(m.height, len(out)))]
}
