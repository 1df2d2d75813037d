package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits.
const (
	maxUsers    = 1000
	maxSessions = 16             // of a user; the next one ends the oldest
	sessionTime = 24 * time.Hour // as in the existing loxilb
	expiryCheck = time.Second    // interval of checks for expired tokens
)

// The refusals.
var (
	ErrNotFound = errors.New("user not found")
	ErrExists   = errors.New("there is a user of this name")
	ErrInvalid  = errors.New("is not allowed")
	ErrLogin    = errors.New("user name or password is wrong") // does not disclose which
	ErrLimit    = fmt.Errorf("the limit of %d users is reached", maxUsers)
)

// User is a user without the password.
type User struct {
	ID      int64
	Name    string
	Role    Role
	Created time.Time
}

// Users are the users of the API, by name and password.
type Users struct {
	dir    string
	now    func() time.Time
	hasher *hasher

	broken error // the file is unreadable: there are no users, and it is not overwritten

	writing sync.Mutex // held while a change is written: readers do not wait for the disk
	content atomic.Pointer[content]
}

// Open reads the users from the state directory. If that fails, there are none until the next
// start, and Err returns why: packets are balanced regardless.
func Open(dir string) *Users {
	c, err := read(dir)
	if err != nil {
		c = &content{}
	}
	u := &Users{dir: dir, now: time.Now, hasher: newHasher(), broken: err}
	c.replaced = make(chan struct{})
	u.content.Store(c)
	return u
}

// Err returns why the users cannot be read.
func (u *Users) Err() error { return u.broken }

// List returns all users, by number.
func (u *Users) List() []User {
	c := u.content.Load()
	out := make([]User, len(c.Users))
	for i, one := range c.Users {
		out[i] = one.public()
	}
	return out
}

func (u *user) public() User {
	role, _ := ParseRole(u.Role) // read and Add have checked it
	return User{u.ID, u.Name, role, u.Created}
}

// Add makes a user.
func (u *Users) Add(ctx context.Context, name, password string, role Role) (User, error) {
	if err := checkName(name); err != nil {
		return User{}, err
	}
	if err := checkPassword(password); err != nil {
		return User{}, err
	}
	hash, err := u.hasher.hash(ctx, password)
	if err != nil {
		return User{}, err
	}
	var added User
	err = u.change(func(c *content) error {
		switch {
		case c.byName(name) != nil:
			return fmt.Errorf("%q: %w", name, ErrExists)
		case len(c.Users) >= maxUsers:
			return ErrLimit
		}
		one := &user{ID: c.NextID, Name: name, Role: role.String(), Password: hash, Created: u.now().UTC().Truncate(time.Second)}
		c.NextID++
		c.Users = append(c.Users, one)
		added = one.public()
		return nil
	})
	return added, err
}

// Update changes the non-empty values. Another password or role ends the user's sessions.
func (u *Users) Update(ctx context.Context, id int64, name, password string, role Role) error {
	hash := ""
	if name != "" {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if password != "" {
		if err := checkPassword(password); err != nil {
			return err
		}
		var err error
		if hash, err = u.hasher.hash(ctx, password); err != nil {
			return err
		}
	}
	return u.change(func(c *content) error {
		one := c.byID(id)
		if one == nil {
			return ErrNotFound
		}
		if other := c.byName(name); name != "" && other != nil && other != one {
			return fmt.Errorf("%q: %w", name, ErrExists)
		}
		if name != "" {
			one.Name = name
		}
		if role != 0 && role.String() != one.Role {
			one.Role = role.String()
			c.endSessions(id)
		}
		if hash != "" {
			one.Password = hash
			c.endSessions(id)
		}
		return nil
	})
}

// Delete deletes a user and its sessions.
func (u *Users) Delete(id int64) error {
	return u.change(func(c *content) error {
		if c.byID(id) == nil {
			return ErrNotFound
		}
		c.Users = slices.DeleteFunc(c.Users, func(one *user) bool { return one.ID == id })
		c.endSessions(id)
		return nil
	})
}

// Login issues a token. A known caller, which has logged in before, does not wait for strangers.
func (u *Users) Login(ctx context.Context, name, password string, known bool) (token string, who User, err error) {
	kept := ""
	if one := u.content.Load().byName(name); one != nil {
		kept, who = one.Password, one.public()
	}
	if len(password) > maxPassword {
		return "", who, ErrLogin
	}
	ok, err := u.hasher.matches(ctx, kept, password, known)
	switch {
	case err != nil:
		return "", who, err
	case !ok:
		return "", who, ErrLogin
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	token = base64.RawURLEncoding.EncodeToString(secret)
	return token, who, u.change(func(c *content) error {
		one := c.byID(who.ID)
		if one == nil || one.Password != kept {
			return ErrLogin // it was changed meanwhile
		}
		c.Sessions = append(c.Sessions, &session{Token: digest(token), User: one.ID, Expires: u.now().Add(sessionTime).UTC().Truncate(time.Second)})
		c.trimSessions(one.ID, u.now())
		return nil
	})
}

// CheckPassword returns ErrLogin if the user does not have this password.
func (u *Users) CheckPassword(ctx context.Context, id int64, password string) error {
	one := u.content.Load().byID(id)
	if one == nil || len(password) > maxPassword {
		return ErrLogin
	}
	ok, err := u.hasher.matches(ctx, one.Password, password, true)
	if err == nil && !ok {
		err = ErrLogin
	}
	return err
}

// UserOf returns the user of a token.
func (u *Users) UserOf(token string) (User, bool) {
	c := u.content.Load()
	if s := c.session(digest(token)); s != nil && u.now().Before(s.Expires) {
		if one := c.byID(s.User); one != nil {
			return one.public(), true
		}
	}
	return User{}, false
}

// ErrEnded is the cause of the end of a context of ContextOf.
var ErrEnded = errors.New("the token has ended: its time is over, its user has logged out, or was changed or deleted")

// ContextOf returns a context that ends when a token becomes invalid.
func (u *Users) ContextOf(ctx context.Context, token string) (context.Context, context.CancelFunc) {
	good, end := context.WithCancelCause(ctx)
	d := digest(token)
	go func() {
		for {
			c := u.content.Load()
			s := c.session(d)
			if s == nil || !u.now().Before(s.Expires) {
				end(ErrEnded)
				return
			}
			wait := time.NewTimer(min(s.Expires.Sub(u.now()), expiryCheck))
			select {
			case <-c.replaced:
			case <-wait.C:
			case <-good.Done():
			}
			wait.Stop()
			if good.Err() != nil {
				return
			}
		}
	}()
	return good, func() { end(context.Canceled) }
}

// Logout ends a session.
func (u *Users) Logout(token string) error {
	return u.change(func(c *content) error {
		c.Sessions = slices.DeleteFunc(c.Sessions, func(s *session) bool { return s.Token == digest(token) })
		return nil
	})
}

// digest returns the stored form of a token. Tokens are random, so a token cannot be guessed from
// its digest, and comparing digests leaks nothing.
func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// change applies edit and writes the result to disk. If it fails, nothing changes.
func (u *Users) change(edit func(*content) error) error {
	if u.broken != nil {
		return u.broken
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	before := u.content.Load()
	next := before.clone()
	if err := edit(next); err != nil {
		return err
	}
	if err := next.write(u.dir); err != nil {
		return err
	}
	u.content.Store(next)
	close(before.replaced)
	return nil
}

func (c *content) clone() *content {
	out := *c
	out.replaced = make(chan struct{})
	out.Users = make([]*user, len(c.Users))
	for i, one := range c.Users {
		copied := *one
		out.Users[i] = &copied
	}
	out.Sessions = slices.Clone(c.Sessions) // none is ever changed
	return &out
}

// session returns the session with a token's digest.
func (c *content) session(digest string) *session {
	i := slices.IndexFunc(c.Sessions, func(s *session) bool { return s.Token == digest })
	if i < 0 {
		return nil
	}
	return c.Sessions[i]
}

func (c *content) byID(id int64) *user {
	for _, one := range c.Users {
		if one.ID == id {
			return one
		}
	}
	return nil
}

func (c *content) byName(name string) *user {
	for _, one := range c.Users {
		if one.Name == name {
			return one
		}
	}
	return nil
}

func (c *content) endSessions(id int64) {
	c.Sessions = slices.DeleteFunc(c.Sessions, func(s *session) bool { return s.User == id })
}

// trimSessions removes expired sessions, and the oldest ones of a user with too many.
func (c *content) trimSessions(id int64, now time.Time) {
	own := 0
	for _, s := range c.Sessions {
		if s.User == id {
			own++
		}
	}
	c.Sessions = slices.DeleteFunc(c.Sessions, func(s *session) bool {
		if s.User == id && own > maxSessions {
			own--
			return true
		}
		return !now.Before(s.Expires)
	})
}

func checkName(name string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._@-]{0,63}$`).MatchString(name) {
		return fmt.Errorf("username %.80q %w: 1 to 64 letters, digits, and . _ @ - after the first", name, ErrInvalid)
	}
	return nil
}

func checkPassword(password string) error {
	if len(password) < minPassword || len(password) > maxPassword {
		return fmt.Errorf("a password of %d bytes %w: %d to %d", len(password), ErrInvalid, minPassword, maxPassword)
	}
	return nil
}
