//! Trees that benches work on: made by an agent in its sandbox, half words and half noise, which is
//! about what a working folder compresses to.

/// A tree of equal files in a hundred folders or less.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    /// How tables call it.
    pub name: &'static str,
    /// How many files.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes `tree/dN/M`: `$ARGV[0]` files of `$ARGV[1]` bytes, of words that no other run has.
const SCRIPT: &str = r#"
my ($files, $bytes) = @ARGV;
open my $noise, "<", "/dev/urandom" or die;
my @words = map { join "", map { chr 97 + int rand 26 } 1 .. 3 + int rand 6 } 1 .. 2000;
my @phrases = map { join(" ", map { $words[rand @words] } 1 .. 3) . " " } 1 .. 20000;
mkdir "tree" or die;
for my $n (0 .. $files - 1) {
    my $dir = "tree/d" . $n % 100;
    mkdir $dir;
    open my $file, ">", "$dir/" . int($n / 100) or die;
    for (my $left = $bytes; $left > 0; ) {
        my $half = $left > 131072 ? 65536 : int(($left + 1) / 2);
        my $text = "";
        $text .= $phrases[rand @phrases] while length $text < $half;
        read $noise, my $rest, ($left > 131072 ? 65536 : $left - $half);
        print $file substr($text, 0, $half), $rest or die;
        $left -= $half + length $rest;
    }
    close $file or die;
}
"#;

impl Tree {
    /// A message that makes the tree and says `made`.
    pub fn script(&self) -> String {
        let each = self.bytes / self.files;
        format!(
            "set -e; rm -rf tree; perl -e '{SCRIPT}' {} {each}; echo made",
            self.files
        )
    }
}
