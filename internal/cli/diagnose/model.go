package diagnose

import (
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	v1 "loxilb/api/v1"
)

// model is the screen of top: the last update, and the choices of the user.
type model struct {
	view
	feed   *feed
	send   func(queryResult)
	height int
	match  string
	offset int // index of the first visible line
	cursor int // the selected visible line

	lastUpdate *v1.RatesUpdate // nil: nothing yet
	lost       error           // why there are no updates
	failed     error           // why it ended
	paused     bool
	help       bool
	typing     bool // a filter is being typed
	typed      string
	above      place // where the list of services was left
	waiting    bool  // for the result of a query
}

// place is a position in a list.
type place struct {
	sort           string
	offset, cursor int
}

func newModel(f *feed, sort, match string, g glyphs) *model {
	return &model{view: view{glyphs: g, sort: sort, width: narrow}, feed: f, match: match, height: 24}
}

// Init requests the first page.
func (m *model) Init() tea.Cmd {
	m.request()
	return nil
}

// rows returns the number of lines that fit.
func (m *model) rows() int { return max(1, m.height-8) }

// request queries the rates for the present screen.
func (m *model) request() {
	params := v1.WatchRatesParams{Sort: m.sort, Match: m.match, Limit: m.rows(), Offset: m.offset}
	if m.service != "" {
		params.Service, params.Match, params.Endpoints = m.service, "", true
	}
	m.waiting = true
	m.feed.request(params, m.send)
}

// Update handles keys, and the server's updates.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if rows := m.rows(); msg.Width != m.width || msg.Height != m.height {
			m.width, m.height = msg.Width, msg.Height
			if m.rows() != rows {
				m.request()
			}
		}
	case queryResult:
		return m, m.update(msg)
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		if m.typing {
			m.typed += printable(msg.Content)
		}
	}
	return m, nil
}

// update applies an update of the server. An answer to an earlier query is ignored.
func (m *model) update(n queryResult) tea.Cmd {
	if n.number != m.feed.number {
		return nil
	}
	switch {
	case n.err != nil && m.lastUpdate == nil, refusal(n.err) && m.service == "":
		m.failed = n.err
		return tea.Quit
	case refusal(n.err):
		m.closeService() // the service is gone
	case n.err != nil:
		m.lost = n.err
	case !m.paused || m.waiting:
		m.lost, m.waiting = nil, false
		m.lastUpdate = n.update
		m.remember(n.update)
		if total := m.total(); m.offset > 0 && m.offset >= total {
			m.offset = max(0, total-m.rows())
			m.request()
		}
		m.cursor = max(0, min(m.cursor, len(rateLines(m.lastUpdate, m.service))-1))
	}
	return nil
}

// total returns the number of lines of the whole list.
func (m *model) total() int {
	if m.lastUpdate == nil {
		return 0
	}
	if m.service == "" {
		return m.lastUpdate.List.Matched
	}
	for _, s := range m.lastUpdate.List.Services {
		return s.EndpointCount
	}
	return 0
}

// View draws the screen.
func (m *model) View() tea.View {
	out := m.screen()
	for i := range out {
		out[i] = ansi.Truncate(out[i], m.width, m.glyphs.cut)
	}
	v := tea.NewView(strings.Join(out, "\n"))
	v.AltScreen = true
	v.WindowTitle = "loxicmd top"
	return v
}

// screen returns the lines of the screen.
func (m *model) screen() []string {
	if m.help {
		return m.helpScreen()
	}
	if m.lastUpdate == nil {
		return []string{"asking the daemon ..."}
	}
	out := append(m.heads(m.lastUpdate), m.status())
	l := newLayout(m.width, m.visibleColumns())
	out = append(out, m.heading(l))
	for i, one := range rateLines(m.lastUpdate, m.service) {
		if i == m.rows() {
			break
		}
		out = append(out, m.row(l, &one, i == m.cursor))
	}
	for len(out) < m.height-1 {
		out = append(out, "")
	}
	if len(out) >= m.height {
		out = out[:max(0, m.height-1)]
	}
	return append(out, m.keys())
}

// status describes the list, or the error.
func (m *model) status() string {
	var text string
	switch {
	case m.typing:
		text = "filter: " + m.typed + "_"
	case m.lost != nil:
		text = m.style(red, "NOT UPDATED: "+printable(m.lost.Error())+"; trying again")
	case m.service != "":
		text = m.serviceLine(m.lastUpdate)
	}
	if text == "" {
		n := len(rateLines(m.lastUpdate, ""))
		text = fmt.Sprintf("services %d-%d of %d, by %s", min(m.offset+1, m.total()), m.offset+n, m.total(), m.sort)
		if m.match != "" {
			text += ", with " + m.match
		}
	}
	if m.paused {
		text = "PAUSED  " + text
	}
	return text
}

// printable removes characters that control the screen from text of other sources.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) { // including 8-bit controls and changes of text direction
			return -1
		}
		return r
	}, s)
}
