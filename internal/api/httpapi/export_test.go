package httpapi

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "loxilb/api/v1"

	"loxilb/internal/api/httpapi/transport"
)

// upload posts a file as curl -F does.
func (b *bench) upload(field, file string) (code int, out v1.ApplyResult, message string) {
	b.t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile(field, "loxilb-config.json")
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := part.Write([]byte(file)); err != nil || w.Close() != nil {
		b.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "http://127.0.0.1:11111"+BaseURL+"/config/import", &form)
	r = r.WithContext(transport.WithPeer(r.Context(), b.peer))
	r.Header.Set("Content-Type", w.FormDataContentType())
	answer := httptest.NewRecorder()
	b.http.ServeHTTP(answer, r)
	if answer.Code != 200 {
		return answer.Code, out, problemOf(b.t, answer).Message
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil {
		b.t.Fatal(err)
	}
	return answer.Code, out, ""
}

// What is exported and imported is the configuration again, whatever came between; what is not in
// the file goes.
func TestExportImport(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	objects := strings.Join([]string{
		object(1, `,"sel":1,"inactiveTimeOut":77`, "10.0.0.1"), object(2, "", "10.0.0.1", "10.0.0.2"),
		`{"kind":"Endpoint","spec":{"hostName":"10.0.0.9"}}`,
		`{"kind":"Firewall","spec":{"ruleArguments":{"sourceIP":"10.9.0.0/16"},"opts":{"drop":true}}}`,
	}, ",")
	if code, _, e := b.apply(`{"objects":[` + objects + `]}`); code != 200 {
		t.Fatalf("%d %+v", code, e)
	}
	w := b.call("GET", BaseURL+"/config/export", "")
	if w.Code != 200 || !strings.Contains(w.Header().Get("Content-Disposition"), `attachment; filename=loxilb-config-`) {
		t.Fatal(w.Code, w.Header())
	}
	file := w.Body.String()
	var parts map[string]any
	if err := json.Unmarshal([]byte(file), &parts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"loadbalancer", "cluster", "endpoint", "firewall", "mirror", "policy", "timestamp", "version"} {
		if _, there := parts[name]; !there {
			t.Errorf("no %s in %s", name, file)
		}
	}

	b.call("DELETE", BaseURL+"/config/loadbalancer/all", "")
	b.apply(`{"objects":[` + object(7, "", "10.0.0.7") + `]}`)
	code, out, message := b.upload("configuration", file)
	if want := "add Loadbalancer 20.20.20.1:80/tcp; add Loadbalancer 20.20.20.2:80/tcp; remove Loadbalancer 20.20.20.7:80/tcp pruned; 2 unchanged"; code != 200 || said(out) != want {
		t.Errorf("%d %s%s, want %s", code, said(out), message, want)
	}
	if code, out, message = b.upload("configuration", file); code != 200 || said(out) != "4 unchanged" {
		t.Errorf("again: %d %s%s", code, said(out), message)
	}
	only := b.call("GET", BaseURL+"/config/export?components=endpoint", "").Body.String()
	if strings.Contains(only, "loadbalancer") || !strings.Contains(only, "10.0.0.9") {
		t.Error(only)
	}
	if code, out, message = b.upload("configuration", `{"endpoint":[]}`); code != 200 || said(out) != "remove Endpoint 10.0.0.9_ping_0; 0 unchanged" {
		t.Errorf("a file of endpoints: %d %s%s", code, said(out), message)
	}
}

// A file that is wrong changes nothing, and it is said where.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.apply(`{"objects":[` + object(1, "", "10.0.0.1") + `]}`)
	good := `{"serviceArguments":{"externalIP":"20.20.20.5","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1}]}`
	for file, want := range map[string]string{
		`{`:                   "configuration is no JSON object",
		`{"timestamp":"now"}`: "configuration \"\" has no component",
		`{"endpoint":{}}`:     "endpoint \"\" is no list",
		`{"loadbalancer":[` + good + `,{"serviceArguments":{"externalIP":"x"}}]}`: "nothing was changed: loadbalancer[1]: ",
		`{"loadbalancer":[{"Serv":{"ServIP":"20.20.20.1"}}]}`:                     "nothing was changed: loadbalancer[0]: ",
		`{"loadbalancer":[],"endpoint":[{"hostName":"nowhere"}]}`:                 "nothing was changed: endpoint[0]: hostName",
	} {
		if code, _, message := b.upload("configuration", file); code != 400 || !strings.HasPrefix(message, want) {
			t.Errorf("%s: %d %s, want %s", file, code, message, want)
		}
	}
	if code, _, message := b.upload("file", `{}`); code != 400 || !strings.Contains(message, "configuration") {
		t.Errorf("%d %s", code, message)
	}
	if w := b.call("POST", BaseURL+"/config/import", `{"endpoint":[]}`); w.Code != 415 {
		t.Error(w.Code, w.Body)
	}
	if w := b.call("GET", BaseURL+"/config/export?components=endpoint,x", ""); w.Code != 400 {
		t.Error(w.Code, w.Body)
	}
	if n := len(b.list()); n != 1 {
		t.Errorf("%d services", n)
	}
}
