package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "correct horse"

func add(t *testing.T, u *Users, name string, role Role) User {
	t.Helper()
	one, err := u.Add(t.Context(), name, secret, role)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func login(t *testing.T, u *Users, name string) string {
	t.Helper()
	token, _, err := u.Login(t.Context(), name, secret, false)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestRestart checks that users and their tokens are restored by a start, that the file contains
// neither passwords nor tokens, and that only its owner can read it.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := Open(dir)
	ann := add(t, u, "ann", Operate)
	bob := add(t, u, "bob", View)
	token, gone := login(t, u, "ann"), login(t, u, "bob")
	if err := u.Delete(bob.ID); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), secret) || strings.Contains(string(text), token) || !strings.Contains(string(text), "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("the file: %v %s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	again := Open(dir)
	if again.Err() != nil {
		t.Fatal(again.Err())
	}
	if who, ok := again.UserOf(token); !ok || who != ann {
		t.Errorf("%+v %v, want %+v", who, ok, ann)
	}
	if _, ok := again.UserOf(gone); ok {
		t.Error("the token of a deleted user is valid")
	}
	if cat := add(t, again, "cat", View); cat.ID != bob.ID+1 {
		t.Errorf("a number is used again: %d", cat.ID)
	}
	if _, _, err := again.Login(t.Context(), "ann", secret, false); err != nil {
		t.Error(err)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	u := Open(t.TempDir())
	ann := add(t, u, "ann", Admin)
	for _, tc := range []struct{ name, password string }{{"ann", "wrong"}, {"ann", ""}, {"", ""}, {"nobody", secret}, {"ann", strings.Repeat("x", 1<<20)}, {"ann", secret + "\x00"}} {
		if token, _, err := u.Login(t.Context(), tc.name, tc.password, false); !errors.Is(err, ErrLogin) || token != "" {
			t.Errorf("%q: got %v, want the error ErrLogin, no token", tc.name, err)
		}
	}
	now := time.Now()
	u.now = func() time.Time { return now }
	token := login(t, u, "ann")
	if _, ok := u.UserOf(token); !ok {
		t.Error("the token is not valid")
	}
	now = now.Add(sessionTime + time.Second)
	if _, ok := u.UserOf(token); ok {
		t.Error("the token does not expire")
	}
	for _, end := range []func(token string) error{
		u.Logout,
		func(string) error { return u.Update(t.Context(), ann.ID, "", secret+"!", 0) },
		func(string) error { return u.Update(t.Context(), ann.ID, "", secret, View) },
	} {
		if err := u.Update(t.Context(), ann.ID, "", secret, 0); err != nil {
			t.Fatal(err)
		}
		token := login(t, u, "ann")
		if err := end(token); err != nil {
			t.Fatal(err)
		}
		if _, ok := u.UserOf(token); ok {
			t.Error("an ended token is valid")
		}
	}
	if err := u.Update(t.Context(), ann.ID, "anna", "", 0); err != nil {
		t.Fatal(err)
	}
	var tokens []string
	for range maxSessions + 2 {
		tokens = append(tokens, login(t, u, "anna"))
	}
	for i, token := range tokens {
		if _, ok := u.UserOf(token); ok != (i >= 2) {
			t.Errorf("token %d of %d is valid: %v", i, len(tokens), ok)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	u := Open(t.TempDir())
	ann, bob := add(t, u, "ann", View), add(t, u, "bob", View)
	for _, tc := range []struct{ name, password string }{
		{"", secret}, {"-x", secret}, {"a b", secret}, {"a\n", secret}, {strings.Repeat("a", 65), secret}, {"$x", secret}, {"é", secret},
		{"cat", ""}, {"cat", "1234567"}, {"cat", strings.Repeat("x", maxPassword+1)},
	} {
		if _, err := u.Add(t.Context(), tc.name, tc.password, View); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q with %d bytes: %v", tc.name, len(tc.password), err)
		}
	}
	if _, err := u.Add(t.Context(), "ann", secret, View); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want the error ErrExists", err)
	}
	if err := u.Update(t.Context(), ann.ID, bob.Name, "", 0); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want the error ErrExists", err)
	}
	if err := u.Update(t.Context(), 99, "x", "", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want the error ErrNotFound", err)
	}
	if err := u.Delete(99); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want the error ErrNotFound", err)
	}
	if n := len(u.List()); n != 2 {
		t.Errorf("%d users", n)
	}
	u.hasher.strangers <- struct{}{} // simulates a password check that does not finish
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := u.Login(ctx, "ann", secret, false); !errors.Is(err, errBusy) {
		t.Errorf("got %v, want the error errBusy", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := u.Login(ctx, "ann", secret, true); err != nil {
		t.Errorf("failed logins from other addresses keep out a user who has logged in before: %v", err)
	}
	if err := u.CheckPassword(ctx, ann.ID, secret); err != nil {
		t.Errorf("unknown callers prevent users from changing their passwords: %v", err)
	}
}

// TestBadFile checks that a file that can't be read admits no user and is not changed, and that a
// failing disk changes nothing.
func TestBadFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"format":2}`, `{"format":1,"users":[{"id":1,"name":"a","role":"king"}]}`, `{"format":1,"users":[{"id":0,"name":"a","role":"view"}]}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		u := Open(dir)
		if u.Err() == nil || len(u.List()) != 0 {
			t.Errorf("%s: %v, %d users", text, u.Err(), len(u.List()))
		}
		if _, err := u.Add(t.Context(), "ann", secret, Admin); err == nil {
			t.Errorf("%s: a user was added to it", text)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s was changed to %s", text, now)
		}
	}
	u := Open(filepath.Join(t.TempDir(), "gone"))
	if _, err := u.Add(t.Context(), "ann", secret, Admin); err == nil || len(u.List()) != 0 {
		t.Errorf("%v, %d users", err, len(u.List()))
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	h := newHasher()
	kept, err := h.hash(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := h.hash(t.Context(), secret)
	if kept == other {
		t.Error("two hashes of a password are the same: there is no salt")
	}
	for text, want := range map[string]bool{
		kept: true, other: true, "": false, "$argon2id$": false, kept[:len(kept)-1]: false, kept + "A": false,
		"$argon2id$v=19$m=4294967295,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": false,
	} {
		if got, err := h.matches(t.Context(), text, secret, false); err != nil || got != want {
			t.Errorf("%s: got %v %v, want no error, %v", text, got, err, want)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]Role{
		"GET /config/loadbalancer/all": View, "GET /metrics": View, "HEAD /logs": View, "POST /auth/logout": View, "PUT /auth/users/{id}": View, "GET /auth/users": View,
		"POST /config/loadbalancer": Operate, "DELETE /config/drain": Operate, "POST /config/metrics": Operate,
		"POST /auth/users": Admin, "DELETE /auth/users/{id}": Admin, "GET /audit": Admin,
		"POST /config/params": Admin, "POST /config/cors": Admin, "DELETE /config/cors/{cors_url}": Admin, "POST /config/import": Operate, "POST /elsewhere": Admin,
		"POST /config/corset": Operate, "POST /configuration": Admin,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := Needed(method, path); got != want {
			t.Errorf("%s needs %s, want %s", request, got, want)
		}
	}
	for word, want := range map[string]Role{"": View, "viewer": View, "Admin": Admin, "operator": Operate, "king": 0} {
		if got, err := ParseRole(word); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %v, %v, want role %v; an error only for role 0", word, got, err, want)
		}
	}
	for _, r := range []Role{View, Operate, Admin} {
		if again, err := ParseRole(r.String()); again != r || err != nil {
			t.Errorf("%v is written as %q", fmt.Sprint(int(r)), r)
		}
	}
}

// TestContextOf checks that a context ends with its token, also when the machine's clock is set.
func TestContextOf(t *testing.T) {
	t.Parallel()
	u := Open(t.TempDir())
	var later atomic.Int64
	u.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	ann := add(t, u, "ann", Operate)
	ends := func(what string, end func() error) {
		t.Helper()
		token := login(t, u, "ann")
		good, cancel := u.ContextOf(t.Context(), token)
		defer cancel()
		add(t, u, fmt.Sprintf("u%d", len(u.List())), View) // does not end the context
		if good.Err() != nil {
			t.Fatalf("%s: over at once", what)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-good.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the session does not end", what)
		}
		if !errors.Is(context.Cause(good), ErrEnded) {
			t.Errorf("%s: got %v, want the error ErrEnded", what, context.Cause(good))
		}
	}
	ends("another role", func() error { return u.Update(t.Context(), ann.ID, "", "", View) })
	ends("another password", func() error { return u.Update(t.Context(), ann.ID, "", secret, 0) })
	ends("it has expired", func() error { later.Store(int64(sessionTime)); return nil })
	later.Store(0)
	ends("it is deleted", func() error { return u.Delete(ann.ID) })
	if good, cancel := u.ContextOf(t.Context(), "none"); true {
		defer cancel()
		<-good.Done()
	}
}

// TestReadersDoNotWait checks that readers do not wait while a change is written to the disk.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	u := Open(t.TempDir())
	add(t, u, "ann", View)
	token := login(t, u, "ann")
	u.writing.Lock() // as during a write
	defer u.writing.Unlock()
	if _, ok := u.UserOf(token); !ok || len(u.List()) != 1 {
		t.Error("the user is missing")
	}
}
