package io.situ.store;

/** A program that prints the version of the native library, or the reason why there is none. */
final class Version {
    private Version() {}

    public static void main(String[] arguments) {
        try {
            System.out.println("version " + Store.libraryVersion());
        } catch (UnsatisfiedLinkError reason) {
            System.out.println(reason);
        }
    }
}
