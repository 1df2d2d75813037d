package users

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func userAliases() []string { return []string{"users"} }

func createUser(o *session.Options) *cobra.Command {
	var role, file string
	cmd := &cobra.Command{
		Use:     "user NAME",
		Aliases: userAliases(),
		Short:   "Create an API user",
		Long: "Creates an API user, who logs in with: loxicmd set login. Prompts for the password of 8 to 128\n" +
			"bytes, or reads it from the first line of --password-file (- is standard input). The role view may\n" +
			"read, operate may also change objects, and admin may do everything.",
		Example: "  loxicmd create user ann --role=operate\n  loxicmd create user bot --role=view --password-file=/root/bot.password",
		Args:    session.Exactly("the name, as in: loxicmd create user ann --role=operate"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := newPassword(o, file)
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateUser(ctx, v1.User{Username: args[0], Password: password, Role: role})
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "view", "view, operate or admin")
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from the first line of this file; - is standard input")
	return cmd
}

func userKind() session.Kind[[]v1.User, v1.User] {
	return session.Kind[[]v1.User, v1.User]{
		Word: "user", Aliases: userAliases(),
		GetHelp:      session.Help{Short: "Show API users", Example: "  loxicmd get user\n  loxicmd get user -l role=admin -o name"},
		DescribeHelp: session.Help{Short: "Show an API user in full", Example: "  loxicmd describe user ann"},
		Fetch:        (*v1.Client).GetUsers,
		Items:        func(l *[]v1.User) *[]v1.User { return l },
		Name:         func(u *v1.User) string { return u.Username },
		OtherNames:   func(u *v1.User) []string { return []string{strconv.FormatInt(u.Id, 10)} },
		Draw: func(list *[]v1.User) *session.Table {
			t := session.NewTable("ID", "Name", "Role", "Created")
			for _, u := range *list {
				t.Add(strconv.FormatInt(u.Id, 10), u.Username, u.Role, u.CreatedAt)
			}
			return t
		},
	}
}

func setUser(o *session.Options) *cobra.Command {
	var role, file, currentFile string
	var password bool
	cmd := &cobra.Command{
		Use:     "user NAME|ID",
		Short:   "Change the role or password of an API user, and revoke its tokens",
		Example: "  loxicmd set user ann --role=admin\n  loxicmd set user ann --password",
		Args:    session.Exactly("the user, as in: loxicmd set user ann --role=admin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if role == "" && file == "" && !password {
				return errors.New("nothing to change: give --role, --password or --password-file")
			}
			u := v1.User{Role: role}
			if password || file != "" {
				var err error
				if u.Password, err = newPassword(o, file); err != nil {
					return err
				}
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			id, err := userID(o, cmd, client, args[0])
			if err != nil {
				return err
			}
			body, err := o.Answer(client.UpdateUser(cmd.Context(), id, u))
			if err != nil && asksCurrentPassword(body) {
				if u.CurrentPassword, err = currentPassword(o, currentFile); err != nil {
					return err
				}
				body, err = o.Answer(client.UpdateUser(cmd.Context(), id, u))
			}
			if err != nil {
				return err
			}
			return o.Done(body)
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "view, operate or admin")
	cmd.Flags().BoolVar(&password, "password", false, "prompt for a new password")
	cmd.Flags().StringVar(&currentFile, "current-password-file", "", "read your current password from the first line of this file, to change your own")
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from the first line of this file; - is standard input")
	return cmd
}

func deleteUser(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "user NAME|ID",
		Aliases: userAliases(),
		Short:   "Delete an API user, and revoke its tokens",
		Example: "  loxicmd delete user ann",
		Args:    session.Exactly("the user, as in: loxicmd delete user ann"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.Client()
			if err != nil {
				return err
			}
			id, err := userID(o, cmd, client, args[0])
			if err != nil {
				return err
			}
			body, err := o.Answer(client.DeleteUser(cmd.Context(), id))
			if err != nil {
				return err
			}
			return o.Done(body)
		},
	}
}

// userID returns the id of a user, given by name or id. Names take precedence: a name may be a
// number.
func userID(o *session.Options, cmd *cobra.Command, client *v1.Client, nameOrID string) (int64, error) {
	list, err := session.DecodeAs[[]v1.User](o.Answer(client.GetUsers(cmd.Context())))
	if err != nil {
		return 0, err
	}
	for _, u := range list {
		if u.Username == nameOrID {
			return u.Id, nil
		}
	}
	if id, err := strconv.ParseInt(nameOrID, 10, 64); err == nil {
		return id, nil
	}
	return 0, session.Refused("user %q not found", nameOrID)
}

// asksCurrentPassword reports whether a refusal demands the user's current password.
func asksCurrentPassword(body []byte) bool {
	var refused v1.Error
	return json.Unmarshal(body, &refused) == nil && refused.Field == "currentPassword"
}

func currentPassword(o *session.Options, file string) (string, error) {
	if file != "" {
		return o.ReadSecret("current-password-file", file)
	}
	return askSecret(o, "Current password: ")
}

// newPassword reads the password from a file, or prompts for it, twice at a terminal.
func newPassword(o *session.Options, file string) (string, error) {
	if file != "" {
		return o.ReadSecret("password-file", file)
	}
	password, err := askSecret(o, "Password: ")
	if err != nil {
		return "", err
	}
	if !atTerminal(o) {
		return password, nil
	}
	again, err := askSecret(o, "Again: ")
	if err == nil && again != password {
		err = errors.New("the passwords do not match")
	}
	return password, err
}

func atTerminal(o *session.Options) bool {
	f, ok := o.Env.Stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// askSecret prompts for a secret without echo at a terminal.
func askSecret(o *session.Options, question string) (string, error) {
	fmt.Fprint(o.Env.Stderr, question)
	f, ok := o.Env.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return readLine(o)
	}
	secret, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(o.Env.Stderr)
	if err != nil {
		return "", err
	}
	if len(secret) == 0 {
		return "", errors.New("no input")
	}
	return string(secret), nil
}

// readLine reads a single line and nothing after it, which is left for the next prompt.
func readLine(o *session.Options) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < 64<<10; {
		n, err := o.Env.Stdin.Read(one)
		if n == 1 && one[0] == '\n' {
			break
		}
		line = append(line, one[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if text := strings.TrimRight(string(line), "\r"); text != "" {
		return text, nil
	}
	return "", errors.New("no input")
}
