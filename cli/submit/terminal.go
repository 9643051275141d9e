package submit

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is how large a terminal is; zeros where there is none.
func terminalSize(file *os.File) (rows, columns uint32) {
	w, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return uint32(w.Row), uint32(w.Col)
}

// rawTerminal lets every key through to the program behind; the returned
// function puts the terminal back. What is no terminal is left alone.
func rawTerminal(from io.Reader) (restore func()) {
	file, ok := from.(*os.File)
	if !ok {
		return func() {}
	}
	fd := int(file.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	raw := *was
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &raw) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }
}
