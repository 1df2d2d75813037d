package objects_test

import (
	"encoding/json"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/test/apitest"
)

// TestExportImport checks that importing an export restores the configuration exactly: objects that
// are not in the file are deleted.
func TestExportImport(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	objects := strings.Join([]string{
		apitest.Object(1, `,"sel":1,"inactiveTimeOut":77`, "10.0.0.1"), apitest.Object(2, "", "10.0.0.1", "10.0.0.2"),
		`{"kind":"Endpoint","spec":{"hostName":"10.0.0.9"}}`,
		`{"kind":"Firewall","spec":{"ruleArguments":{"sourceIP":"10.9.0.0/16"},"opts":{"drop":true}}}`,
	}, ",")
	if code, _, e := b.Apply(`{"objects":[` + objects + `]}`); code != 200 {
		t.Fatalf("got %d %+v, want code 200", code, e)
	}
	w := b.Call("GET", httpapi.BaseURL+"/config/export", "")
	if w.Code != 200 || !strings.Contains(w.Header().Get("Content-Disposition"), `attachment; filename=loxilb-config-`) {
		t.Fatalf("got %v %v, want code 200, `attachment; filename=loxilb-config-` in w.Header().Get(\"Content-Disposition\")",
			w.Code, w.Header())
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

	b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/all", "")
	b.Apply(`{"objects":[` + apitest.Object(7, "", "10.0.0.7") + `]}`)
	code, out, message := b.Upload("configuration", file)
	if want := "add Loadbalancer 20.20.20.1:80/tcp; add Loadbalancer 20.20.20.2:80/tcp; remove Loadbalancer 20.20.20.7:80/tcp pruned; 2 unchanged"; code != 200 ||
		apitest.DescribeChanges(out) != want {
		t.Errorf("%d %s%s, want %s", code, apitest.DescribeChanges(out), message, want)
	}
	if code, out, message = b.Upload("configuration", file); code != 200 || apitest.DescribeChanges(out) != "4 unchanged" {
		t.Errorf("the second import is answered %d %s%s", code, apitest.DescribeChanges(out), message)
	}
	only := b.Call("GET", httpapi.BaseURL+"/config/export?components=endpoint", "").Body.String()
	if strings.Contains(only, "loadbalancer") || !strings.Contains(only, "10.0.0.9") {
		t.Errorf(`got %v, want no "loadbalancer" in only, "10.0.0.9" in only`, only)
	}
	if code, out, message = b.Upload("configuration", `{"endpoint":[]}`); code != 200 || apitest.DescribeChanges(out) != "remove Endpoint 10.0.0.9_ping_0; 0 unchanged" {
		t.Errorf("a file of endpoints: %d %s%s", code, apitest.DescribeChanges(out), message)
	}
}

// TestImportRefused checks that an invalid file changes nothing, and that the error has a position.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `]}`)
	good := `{"serviceArguments":{"externalIP":"20.20.20.5","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1}]}`
	for file, want := range map[string]string{
		`{`:                   "configuration is not a JSON object",
		`{"timestamp":"now"}`: "configuration \"\" has no component",
		`{"endpoint":{}}`:     "endpoint \"\" is not a list",
		`{"loadbalancer":[` + good + `,{"serviceArguments":{"externalIP":"x"}}]}`: "nothing was changed: loadbalancer[1]: ",
		`{"loadbalancer":[{"Serv":{"ServIP":"20.20.20.1"}}]}`:                     "nothing was changed: loadbalancer[0]: ",
		`{"loadbalancer":[],"endpoint":[{"hostName":"nowhere"}]}`:                 "nothing was changed: endpoint[0]: hostName",
	} {
		if code, _, message := b.Upload("configuration", file); code != 400 || !strings.HasPrefix(message, want) {
			t.Errorf("%s: %d %s, want %s", file, code, message, want)
		}
	}
	if code, _, message := b.Upload("file", `{}`); code != 400 || !strings.Contains(message, "configuration") {
		t.Errorf(`got %d %s, want code 400, "configuration" in message`, code, message)
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/import", `{"endpoint":[]}`); w.Code != 415 {
		t.Errorf("got %v %v, want code 415", w.Code, w.Body)
	}
	if w := b.Call("GET", httpapi.BaseURL+"/config/export?components=endpoint,x", ""); w.Code != 400 {
		t.Errorf("got %v %v, want code 400", w.Code, w.Body)
	}
	if n := len(b.List()); n != 1 {
		t.Errorf("%d services", n)
	}
}
