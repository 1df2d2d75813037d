package session

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/kinds"
)

// TestMirrorTable checks that each property of a mirror is on a separate line.
func TestMirrorTable(t *testing.T) {
	t.Parallel()
	list := []any{&v1.Mirror{MirrorIdent: "m", MirrorInfo: v1.MirrorInfo{Type: 1, Port: "hs0", Vlan: 7}, TargetObject: v1.MirrorTarget{Attachment: 1, MirrObjName: "hs1"}}}
	const want = "" +
		"| MIRROR NAME | MIRROR INFO  | ATTACHMENT | OBJECT NAME |\n" +
		"|-------------|--------------|------------|-------------|\n" +
		"| m           | Type : RSPAN | port       | hs1         |\n" +
		"|             | Port : hs0   |            |             |\n" +
		"|             | Vlan ID : 7  |            |             |\n"
	if got := registeredOf(kinds.Mirror()).table(list, false).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestPolicyTable checks the contract's columns, in its unit for whole numbers.
func TestPolicyTable(t *testing.T) {
	t.Parallel()
	list := []any{
		&v1.Policy{PolicyIdent: "a", PolicyInfo: v1.PolicyInfo{PeakInfoRate: 200, CommittedInfoRate: 100, PeakRate: "200mbit", CommittedRate: "100mbit"}},
		&v1.Policy{PolicyIdent: "b", PolicyInfo: v1.PolicyInfo{Type: 1, CommittedInfoRate: 0.01, CommittedRate: "10kbit"}},
		&v1.Policy{PolicyIdent: "c", PolicyInfo: v1.PolicyInfo{PeakRate: "2kpps", CommittedRate: "1kpps"}},
	}
	const want = "" +
		"| IDENT | PEAKINFORATE | COMMITTEDINFORATE |\n" +
		"|-------|--------------|-------------------|\n" +
		"| a     |          200 |               100 |\n" +
		"| b     |            0 | 10kbit            |\n" +
		"| c     | 2kpps        | 1kpps             |\n"
	if got := registeredOf(kinds.Policer()).table(list, false).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestCreateRegistered checks that create sends the values of the flags and of the argument.
func TestCreateRegistered(t *testing.T) {
	t.Parallel()
	type note struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	k := &kinds.Kind[note, note]{
		Words: kinds.Words{Name: "note", Command: "note", List: "noteAttr"},
		API:   kinds.API[note, note]{Path: "/config/note", ObjectPath: "/name/{name}"},
		CLI: kinds.CLI[note]{
			Texts: kinds.Texts{Singular: "a note", Plural: "notes", Argument: "NAME", Sample: "todo"},
			Set:   func(n *note, name string) { n.Name = name },
			Flags: []kinds.Flag[*note]{{Name: "text", Usage: "what it says", Required: true, Set: func(n *note, text string) error {
				if text == "" {
					return errors.New("it is empty")
				}
				n.Text = text
				return nil
			}}},
		},
	}
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + strings.TrimSpace(string(body))
		_, _ = io.WriteString(w, `{"result":"Success"}`)
	}))
	defer server.Close()
	client, err := v1.NewClient(server.URL + "/netlox/v1")
	if err != nil {
		t.Fatal(err)
	}
	r := registeredOf(k)
	cmd := r.create(&Options{})
	if err := cmd.ParseFlags([]string{"--text="}); err == nil {
		t.Error("an empty text was accepted")
	}
	if cmd.Short != "Create or change a note" || cmd.Use != "note NAME" || cmd.Example != "  loxicmd create note todo" {
		t.Errorf("the help is %q, %q, %q", cmd.Short, cmd.Use, cmd.Example)
	}
	resp, err := send(t.Context(), client, http.MethodPost, "/config/note", &note{"todo", "buy milk"})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // its status says all
	if want := `POST /netlox/v1/config/note {"name":"todo","text":"buy milk"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
