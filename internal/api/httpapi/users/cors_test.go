package users_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/users"
	"loxilb/test/apitest"
)

// TestCors checks that a web page gets answers while its origin is in the list, and needs a token
// like every client.
func TestCors(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.Token = "s3cret" })
	const page = "https://ui.example.org:8443"
	auth := []string{"Authorization", "s3cret", "Content-Type", "application/json"}
	fromPage := append(slices.Clone(auth), "Origin", page, "Sec-Fetch-Site", "cross-site")
	change := func() int {
		return b.Call("POST", httpapi.BaseURL+"/config/params", `{"logLevel":"info"}`, fromPage...).Code
	}
	preflight := func(origin string) int {
		return b.Call("OPTIONS", httpapi.BaseURL+"/config/params", "", "Origin", origin, "Access-Control-Request-Method", "POST").Code
	}
	if code := change(); code != 403 {
		t.Errorf("a page of an origin that is not in the list: %d", code)
	}
	if code := preflight(page); code == 204 {
		t.Error("a preflight request is allowed")
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/cors", `{"cors":[" HTTPS://UI.example.org:8443/ ","http://other"]}`, auth...); w.Code != 200 {
		t.Fatalf("got %v %v, want code 200", w.Code, w.Body)
	}
	list := b.Call("GET", httpapi.BaseURL+"/config/cors/all", "", auth...).Body.String()
	if strings.TrimSpace(list) != `{"corsAttr":["http://other","`+page+`"]}` {
		t.Errorf("got %s, want the origins http://other and %s", list, page)
	}
	if code := change(); code != 200 {
		t.Errorf("a page of an origin in the list: %d", code)
	}
	if code := preflight(page); code != 204 {
		t.Errorf("the browser's preflight request: %d", code)
	}
	w := b.Call("GET", httpapi.BaseURL+"/version", "", "Origin", page)
	if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != page || w.Header().Get("Vary") != "Origin" {
		t.Errorf("without a token: %d %v", w.Code, w.Header())
	}
	if w := b.Call("GET", httpapi.BaseURL+"/version", "", append(slices.Clone(auth), "Origin", "https://elsewhere")...); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page may read: %v", w.Header())
	}
	del := httpapi.BaseURL + "/config/cors/https:%2F%2Fui.example.org:8443"
	if w := b.Call("DELETE", del, "", auth...); w.Code != 200 {
		t.Errorf("got %v %v, want code 200", w.Code, w.Body)
	}
	if w := b.Call("DELETE", del, "", auth...); w.Code != 404 {
		t.Errorf("deleted twice: %d", w.Code)
	}
	if code := change(); code != 403 {
		t.Errorf("a page of an origin that was deleted: %d", code)
	}
}

// TestCorsRefused checks that an invalid origin, or one too many, refuses the whole request.
func TestCorsRefused(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	post := func(list ...string) int {
		body := `{"cors":["http://good","` + strings.Join(list, `","`) + `"]}`
		return b.Call("POST", httpapi.BaseURL+"/config/cors", body, "Content-Type", "application/json").Code
	}
	for _, text := range []string{
		"", "*", "https://*", "null", "ui.example.org", "ftp://x", "https://x/path", "https://x?q", "https://u@x", "https://",
		"https://x#y", `https://x\u0000`,
	} {
		if code := post(text); code != 400 {
			t.Errorf("%q: got %d, want 400", text, code)
		}
	}
	if list := apitest.GetAs[v1.CorsList](b, "/config/cors/all").CorsAttr; len(list) != 0 {
		t.Errorf("a refused request stored %q", list)
	}
	var many []string
	for i := range users.MaxOrigins {
		many = append(many, fmt.Sprintf("http://h%d", i))
	}
	if code := post(many...); code != 400 {
		t.Errorf("%d origins: %d", users.MaxOrigins+1, code)
	}
	if code := post(many[1:]...); code != 200 {
		t.Errorf("%d origins: %d", users.MaxOrigins, code)
	}
}
