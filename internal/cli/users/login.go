package users

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/contract"
)

// checkProvider checks the value of the contract's flag --provider.
func checkProvider(verb, provider string) error {
	switch provider {
	case "", "manual":
		return nil
	case "google", "github":
		note, _ := contract.Missing("set", "refresh")
		return fmt.Errorf("set %s --provider=%s: %s", verb, provider, note)
	}
	return fmt.Errorf("--provider %q is not supported (allowed: manual, or omit it)", provider)
}

func setLogin(o *session.Options) *cobra.Command {
	var provider, name, file string
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in, and keep the token for later commands",
		Long: "Prompts for a user name and password, and stores the server's token, valid for 24 hours, in\n" +
			session.TokenFile + ", readable only by you. With --provider=manual it prompts for a token instead.",
		Example: "  loxicmd set login --protocol=https -s 10.0.0.1 -p 8091",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkProvider("login", provider); err != nil {
				return err
			}
			if provider == "manual" {
				token, err := askSecret(o, "Enter Access Token: ")
				if err != nil {
					return err
				}
				return keepToken(o, token)
			}
			if name == "" {
				fmt.Fprint(o.Env.Stderr, "Enter ID: ")
				var err error
				if name, err = readLine(o); err != nil {
					return err
				}
			}
			password, err := passwordOf(o, file)
			if err != nil {
				return err
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			given, err := session.DecodeAs[v1.LoginToken](o.Answer(client.Login(cmd.Context(), v1.User{Username: name, Password: password})))
			if err != nil {
				return err
			}
			if given.Token == "" {
				return session.Refused("the server returned no token")
			}
			return keepToken(o, given.Token)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "manual: prompt for a token, as set by loxilb --manualtoken")
	cmd.Flags().StringVar(&name, "user", "", "name of the user (default: prompt)")
	cmd.Flags().StringVar(&file, "password-file", "", "read the password from the first line of this file; - is standard input (default: prompt)")
	return cmd
}

func passwordOf(o *session.Options, file string) (string, error) {
	if file != "" {
		return o.ReadSecret("password-file", file)
	}
	return askSecret(o, "Enter Password: ")
}

// keepToken writes the token to a new file that only its owner can read: an existing file may
// belong to another user.
func keepToken(o *session.Options, token string) error {
	if err := dropToken(o); err != nil {
		return err
	}
	f, err := os.OpenFile(o.TokenPath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return session.Refused("store the token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return session.Refused("store the token: %w", err)
	}
	return o.Print("Login Success\n")
}

// dropToken removes the token file, if there is one.
func dropToken(o *session.Options) error {
	if err := os.Remove(o.TokenPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return session.Refused("remove the token: %w", err)
	}
	return nil
}

func setLogout(o *session.Options) *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use:     "logout",
		Short:   "Log out: revoke the token kept by set login",
		Example: "  loxicmd set logout",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkProvider("logout", provider); err != nil {
				return err
			}
			var refusal error
			if provider == "" {
				client, err := o.Client()
				if err != nil {
					return err
				}
				var unreachable *session.Failure
				if _, err = o.Answer(client.Logout(cmd.Context())); errors.As(err, &unreachable) && unreachable.Code == session.ExitUnreachable {
					return err
				}
				refusal = err // the token has expired; it is removed nevertheless
			}
			if err := errors.Join(dropToken(o), refusal); err != nil {
				return err
			}
			return o.Print("Logout Success\n")
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "manual: delete the token without contacting the server")
	return cmd
}
