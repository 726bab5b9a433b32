package io.situ.kafka.trial;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Programs of this class path in processes of their own. */
final class Processes {
    private Processes() {}

    private static List<String> command(List<String> options, List<String> program) {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        command.add("-Dsitu.library=" + System.getProperty("situ.library", ""));
        command.add("-Dtrial.log=" + System.getProperty("trial.log", "error"));
        command.addAll(options);
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.addAll(program);
        return command;
    }

    /** Runs a program to its end, which must be a good one. */
    static void run(List<String> program) throws Exception {
        Process process = new ProcessBuilder(command(List.of(), program)).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        if (process.waitFor() != 0) {
            throw new IOException(program + ": " + said);
        }
    }

    /** Starts a program whose errors go to a file. Its output and input are pipes. */
    static Process start(List<String> options, List<String> program, Path errors) throws IOException {
        return new ProcessBuilder(command(options, program))
                .redirectError(ProcessBuilder.Redirect.appendTo(errors.toFile()))
                .start();
    }

    /** Returns the memory that a process has in use, in bytes. */
    static long residentBytes(Process process) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/" + process.pid() + "/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) << 10;
            }
        }
        return 0;
    }
}
